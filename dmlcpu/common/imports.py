"""Imports on first use of this package's names and of optional packages, and the errors if they are missing."""

import importlib
from collections.abc import Callable, Iterable, Mapping
from types import ModuleType
from typing import Any


def attach(
    package: str, home_of: Mapping[str, str], public: list[str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` of a package whose names load on first use. home_of: name -> its module."""

    def load(name: str) -> Any:
        if name not in home_of:
            raise unknown(package, name, public)
        return getattr(importlib.import_module(home_of[name]), name)

    return load, lambda: public


def unknown(module: str, name: str, public: Iterable[str], meant: str | None = None) -> AttributeError:
    """Return the error about an unknown name, which suggests the intended name, or similar public names.

    Python prints its own suggestions only below a traceback, and only if the name was assigned before.
    """
    message = f"module {module!r} has no attribute {name!r}"
    if name.startswith("_"):  # tools query such names, so a suggestion would not help
        return AttributeError(message)
    try:
        from difflib import get_close_matches  # imported here, as few programs need it
    except ImportError:  # the interpreter is shutting down
        return AttributeError(message)
    like = [repr(each) for each in ([meant] if meant else get_close_matches(name, public))]
    return AttributeError(f"{message}; did you mean {' or '.join(like)}?" if like else message)


class MissingExtraError(ImportError):
    """An optional package is not installed."""


def extra(module: str) -> ModuleType:
    """Import a package of the ``cli`` extra."""
    return optional(module, "the command line needs", "cli")


def install_command(extra: str) -> str:
    """Return how an extra is installed, for messages; no package index has the package yet."""
    return f"pip install '.[{extra}]' in a clone of dmlcpu"


def optional(module: str, needs: str, extra: str = "") -> ModuleType:
    """Import an optional package, which an extra or its own name installs; `needs` begins the error."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError:
        package = module.partition(".")[0]
        how = install_command(extra) if extra else f"pip install {package}"
        raise MissingExtraError(f"{needs} the package {package}: {how}") from None
