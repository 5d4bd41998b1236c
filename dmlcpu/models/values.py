"""The contents of buffers as text and as files."""

import os
from pathlib import Path

import numpy as np

from dmlcpu.common.arguments import Array
from dmlcpu.common.regions import Tensor
from dmlcpu.files import FileError, create, open_source, write_whole
from dmlcpu.files.stored import StoredWriter, open_file
from dmlcpu.files.targets import resolved


def flat(values: Array) -> str:
    """Return values as one line."""
    return ", ".join(_texts(values))


def lines(values: Array) -> str:
    """Return one line for each value, with its position and its bits."""
    width = len(str(values.size))
    words = values.view(f"u{values.itemsize}").tolist()
    digits = values.itemsize * 2
    pairs = enumerate(zip(_texts(values), words, strict=True))
    return "\n".join(f"[{i:{width}}] {text} (0x{word:0{digits}X})" for i, (text, word) in pairs)


def _texts(values: Array) -> list[str]:
    if values.dtype.kind == "f":
        return [f"{value:g}" for value in values.tolist()]  # six digits, as DxDispatch prints
    return list(map(str, values.tolist()))


def read(path: Path) -> Array:
    """Read a .npy file, or any other file as bytes."""
    if not is_npy(path):
        with open_file(path) as file:
            return np.frombuffer(file.readall(), np.uint8)
    with open_source(path) as source:
        return source.read()


def write(target: Path, array: Array) -> None:
    """Write a .npy file, or bytes to any other file; the file appears when it is complete."""
    tensor, token = Tensor(array.shape, array.dtype), os.urandom(6).hex()
    try:
        if is_npy(target):
            writer = create(target, {"": tensor}, token)
        else:
            writer = StoredWriter(resolved(target), "", tensor, token)
    except FileError as error:
        raise FileError(f"{str(target)!r}: {error.found}", error.allowed) from None
    write_whole(writer, {"": array})


def is_npy(path: Path) -> bool:
    """Return whether the name is that of a .npy file."""
    return path.suffix.lower() == ".npy"
