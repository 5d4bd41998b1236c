"""Packages that may not be installed."""

import importlib


def package(name):
    """Import a package; raise NotImplementedError if it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError:
        raise NotImplementedError(f"{name} is not installed") from None
