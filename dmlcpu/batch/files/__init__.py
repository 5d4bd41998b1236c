"""Arrays in files: opened to be read a region at a time, and written so that no half-written file is ever seen.

One module for each format, found by the suffix of the file's name. What a format's library is needed for is said where
it is missing; nothing is ever unpickled.
"""

import importlib
import os
from collections.abc import Mapping
from typing import Any

from dmlcpu.batch.files.base import FileError, FileSource
from dmlcpu.batch.files.identities import identity
from dmlcpu.batch.files.targets import Writer, remove, stray, sync_folder, write_whole
from dmlcpu.common.regions import Tensor

__all__ = [
    "HELD",
    "IN_REGIONS",
    "ONE_ARRAY",
    "SUFFIXES",
    "FileError",
    "FileSource",
    "Writer",
    "check_target",
    "create",
    "identity",
    "open_source",
    "remove",
    "stray",
    "sync_folder",
    "write_whole",
]

_MODULES = {
    ".npy": "npy",
    ".npz": "npz",
    ".safetensors": "safetensors_files",
    ".zarr": "zarr_folders",
    ".pb": "onnx_tensors",
}
SUFFIXES = tuple(_MODULES)
ONE_ARRAY = (".npy", ".pb")  # those that hold one, without a name
IN_REGIONS = (".npy", ".zarr")  # those that are written as regions come; the others hold arrays in memory
# How many times over these do, at most, while they are written: the libraries copy what they write (measured).
HELD = {".npz": 1, ".safetensors": 3, ".pb": 4}


def open_source(path: str | os.PathLike[str], name: str | None = None, dtype: str | None = None) -> FileSource:
    """Open an array in a file. Its header is read and checked, and that the file is as long as that says.

    Parameters
    ----------
    path : path
        A file with one of `SUFFIXES`.
    name : str, optional
        Which array, of those in an .npz or safetensors file or a zarr group. Needed if there are several.
    dtype : str, optional
        The name of a type as wide as the stored one, which the elements are seen as: "bfloat16", for which .npy files
        have no name.

    Returns
    -------
    FileSource
        The array, in native byte order; to be closed, or used in a ``with`` statement.

    Raises
    ------
    FileError
        The file is not as its format says, holds Python objects or structured elements, or has no such array.
    OSError
        It cannot be opened or read.
    ImportError
        Its format needs a package that is not installed.

    Examples
    --------
    >>> import tempfile, numpy as np
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(f"{folder}/x.npy", np.arange(6.0).reshape(2, 3))
    ...     with open_source(f"{folder}/x.npy") as x:
    ...         print(x.shape, x.dtype, x.read((slice(1, 2), slice(0, 2))))
    (2, 3) float64 [[3. 4.]]
    """
    text = os.fspath(path)
    opened: FileSource = _format(text).open_source(text, name, dtype)
    return opened


def check_target(path: str | os.PathLike[str], tensors: Mapping[str, Tensor]) -> None:
    """Refuse what `create` would refuse, but for what only the attempt to write can tell.

    Parameters
    ----------
    path, tensors
        As for `create`.

    Raises
    ------
    FileError, OSError, ImportError
        As of `create`.
    """
    text = os.fspath(path)
    _format(text).check_target(text, tensors)


def create(path: str | os.PathLike[str], tensors: Mapping[str, Tensor], token: str) -> Writer:
    """Begin a file of one or several arrays, under a temporary name beside its target.

    .npy files and zarr folders are written as regions come; the other formats hold their arrays in memory until they
    are finished.

    Parameters
    ----------
    path : path
        A file with one of `SUFFIXES`; its folder is made. Of a symbolic link, what it leads to is replaced.
    tensors : mapping of str to Tensor
        Names, shapes and types of the arrays.
    token : str
        Hexadecimal digits, others for each attempt, that are part of the temporary name.

    Returns
    -------
    Writer
        Its `sinks` take the elements.

    Raises
    ------
    FileError
        The format cannot hold these arrays, or what is in the target's place is no file.
    OSError
        It cannot be written there.
    ImportError
        Its format needs a package that is not installed.

    Examples
    --------
    >>> import tempfile, numpy as np
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     writer = create(f"{folder}/new/y.npy", {"y": Tensor((3,), np.dtype("i4"))}, "1f")
    ...     writer.sinks["y"].write((slice(0, 3),), np.arange(3, dtype="i4"))
    ...     writer.finish()
    ...     writer.put_in_place()
    ...     sync_folder(writer.folder)
    ...     np.load(f"{folder}/new/y.npy")
    array([0, 1, 2], dtype=int32)
    """
    text = os.fspath(path)
    writer: Writer = _format(text).create(text, tensors, token)
    return writer


def _format(path: str) -> Any:
    suffix = os.path.splitext(path)[1].lower()
    if suffix not in _MODULES:
        raise FileError(f"the suffix {suffix!r}" if suffix else "no suffix", ", ".join(SUFFIXES))
    return importlib.import_module(f"dmlcpu.batch.files.{_MODULES[suffix]}")
