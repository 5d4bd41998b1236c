"""Raw files: bytes without a header. Only models read and write them; jobs do not, as such a file tells no type."""

import os

import numpy as np

from dmlcpu.batch.files.base import FileSource
from dmlcpu.batch.files.stored import Layout, StoredSource, StoredWriter, open_file
from dmlcpu.batch.files.targets import Writer, resolved
from dmlcpu.common.regions import Tensor


def open_source(path: str | os.PathLike[str]) -> FileSource:
    """Open a raw file as an array of bytes."""
    file = open_file(path)
    return StoredSource(file, Layout(Tensor((os.fstat(file.fileno()).st_size,), np.dtype(np.uint8)), 0))


def create(path: str | os.PathLike[str], name: str, tensor: Tensor, token: str) -> Writer:
    """Begin a raw file of one array."""
    return StoredWriter(resolved(path), name, tensor, token)
