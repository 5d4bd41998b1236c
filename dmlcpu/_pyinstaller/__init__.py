"""Hooks for PyInstaller, by the entry point `pyinstaller40`."""

import os


def hook_dirs() -> list[str]:
    """Return the folders of hooks: this one."""
    return [os.path.dirname(__file__)]
