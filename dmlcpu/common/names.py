"""Names of a package that load on first use, and errors about names that it does not have."""

import importlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any


def lazy(
    package: str, homes: Mapping[str, Iterable[str]]
) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """Return a package's `__all__`, `__getattr__` and `__dir__` for names that other modules have."""
    home_of = {name: home for home, names in homes.items() for name in names}
    public = sorted(home_of)

    def load(name: str) -> Any:
        if name not in home_of:
            raise unknown(package, name, public)
        return getattr(importlib.import_module(home_of[name]), name)

    return public, load, lambda: public


def unknown(module: str, name: str, public: Iterable[str]) -> AttributeError:
    """Return the error about a name, which suggests the public names that are like it.

    Python's own suggestions are printed below a traceback only, and only where the name was assigned before.
    """
    message = f"module {module!r} has no attribute {name!r}"
    if name.startswith("_"):  # tools ask for such names, which no one has misspelled
        return AttributeError(message)
    try:
        from difflib import get_close_matches  # only here: few programs need it
    except ImportError:  # the interpreter is shutting down
        return AttributeError(message)
    like = [repr(each) for each in get_close_matches(name, public)]
    return AttributeError(f"{message}; did you mean {' or '.join(like)}?" if like else message)
