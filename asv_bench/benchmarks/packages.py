"""Packages that may not be installed."""

import importlib


def package(name):
    """Import a peer, if it is installed."""
    try:
        return importlib.import_module(name)
    except ImportError:
        raise NotImplementedError(f"{name} is not installed") from None
