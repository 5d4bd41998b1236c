"""Optional packages, imported when they are needed."""

import importlib
from types import ModuleType


class MissingExtraError(ImportError):
    """An optional package is not installed."""


def extra(module: str) -> ModuleType:
    """Import a package of the ``cli`` extra."""
    return optional(module, "the command line needs", "'dmlcpu[cli]'")


def optional(module: str, needs: str, install: str) -> ModuleType:
    """Import an optional package; `needs` begins the error, `install` is the argument for pip."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError:
        package = module.partition(".")[0]
        raise MissingExtraError(f"{needs} the package {package}: pip install {install}") from None
