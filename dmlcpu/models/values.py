"""Buffers' contents as text and as files."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def flat(values: Array) -> str:
    """Write values in one line."""
    return ", ".join(_texts(values))


def lines(values: Array) -> str:
    """Write each value in a line of its own, with its position and its bits."""
    width = len(str(values.size))
    words = values.view(f"u{values.itemsize}").tolist()
    digits = values.itemsize * 2
    return "\n".join(
        f"[{i:{width}}] {text} (0x{word:0{digits}X})"
        for i, (text, word) in enumerate(zip(_texts(values), words, strict=True))
    )


def _texts(values: Array) -> list[str]:
    if values.dtype.kind == "f":
        return [f"{value:g}" for value in values.tolist()]  # six digits, as DxDispatch prints
    return list(map(str, values.tolist()))


def write_npy(target: Path, array: Array) -> None:
    """Write a .npy file."""
    _replace(target, lambda file: np.lib.format.write_array(file, array, allow_pickle=False))


def write_raw(target: Path, memory: Array) -> None:
    """Write bytes as they are."""
    _replace(target, lambda file: file.write(memory.data))


def _replace(target: Path, write: Callable[[BinaryIO], Any]) -> None:
    """Write a file beside `target` and put it in its place, so that nobody ever sees half of it."""
    target = Path(os.path.realpath(target))
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        with part.open("wb") as file:
            write(file)
        os.replace(part, target)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
