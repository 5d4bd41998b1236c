"""The table of file formats. A format is a module and a line here."""

import os
from collections.abc import Callable

from dmlcpu.files import hdf5_files, npy, npz, onnx_tensors, safetensors_files, zarr_folders
from dmlcpu.files.base import FileError, Format
from dmlcpu.files.remote import suffix_of

FORMATS = (
    npy.FORMAT,
    npz.FORMAT,
    safetensors_files.FORMAT,
    zarr_folders.FORMAT,
    onnx_tensors.FORMAT,
    hdf5_files.FORMAT,
)
_BY_SUFFIX = {suffix: each for each in FORMATS for suffix in each.suffixes}
SUFFIXES = tuple(_BY_SUFFIX)
INDEX, INDEX_HEADER = ".index", "index.json"  # saved indices, which dmlcpu.search reads and writes
# Folders that are read and replaced as one: by their suffixes, and by the files that are in each of them.
WHOLE = (*(suffix for each in FORMATS if each.mark for suffix in each.suffixes), INDEX)
MARKS = (*(each.mark for each in FORMATS if each.mark), INDEX_HEADER)


def known(path: str | os.PathLike[str]) -> Format | None:
    """Return the format of a file's name, if it has one."""
    return _BY_SUFFIX.get(suffix_of(path))


def format_of(path: str | os.PathLike[str]) -> Format:
    """Return the format of a file's name, or refuse the name."""
    if found := known(path):
        return found
    suffix = suffix_of(path)
    raise FileError(f"the suffix {suffix!r}" if suffix else "no suffix", ", ".join(SUFFIXES))


def suffixes_where(wanted: Callable[[Format], object]) -> tuple[str, ...]:
    """Return the suffixes of the formats that a function chooses."""
    return tuple(suffix for each in FORMATS if wanted(each) for suffix in each.suffixes)
