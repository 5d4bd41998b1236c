"""Values and names as messages show them."""

import json
from collections.abc import Iterable
from typing import Any


def shown(value: Any) -> str:
    """Write a JSON value for a message: a short value in full, any other by its kind."""
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return f"a list of {len(value)}"
    if isinstance(value, str):
        text = repr(value)
    else:  # TOML has dates and times, too
        text = json.dumps(value) if value is None or isinstance(value, int | float) else str(value)
    return text if len(text) <= 80 else text[:77] + "..."


def listed(names: Iterable[str]) -> str:
    """Write the names that are allowed; there may be none."""
    return ", ".join(names) or "nothing (there are none)"


def printable(text: str) -> str:
    """Return an id for a message: names of files may bring line ends and control characters into it."""
    return text if text.isprintable() else repr(text)[1:-1]
