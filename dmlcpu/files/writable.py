"""Whether a folder, which need not exist yet, can take a file."""

import os
from pathlib import Path


def folder_error(folder: str) -> str | None:
    """Return why no file can be made in a folder; None if one can."""
    found = existing(folder)
    if not found.is_dir():
        return f"{found} is no folder"
    return None if os.access(found, os.W_OK | os.X_OK) else f"{found} is read-only"


def existing(folder: str) -> Path:
    """Return a folder, or the nearest around it that exists."""
    found = Path(folder)
    while not os.path.exists(found) and found != found.parent:
        found = found.parent
    return found
