"""Elements that lie one after another in a file, read and written by regions with plain reads and writes.

Not by mapping the file: a mapped file that another program makes shorter kills the process with SIGBUS, and its pages
count as the process's memory.
"""

import contextlib
import io
import itertools
import math
import os
import stat
import threading
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from dmlcpu.common.arguments import Array
from dmlcpu.common.block_reader import tile_of
from dmlcpu.common.cleanup import OnFailure
from dmlcpu.common.regions import Region, Tensor
from dmlcpu.files.base import FileError, FileSource, check_block
from dmlcpu.files.remote import PIECE, RemoteFile, file_system, is_remote
from dmlcpu.files.targets import FileWriter
from dmlcpu.runtime.memory import packed_strides

# Runs of elements shorter than _SHORT are read along with the gaps between them, through _SPAN bytes at a time, if the
# gaps have no more than _GAP bytes for each run: to read those costs about as much as a call. Longer runs are worth a
# call each, without a copy.
_SPAN = 1 << 20
_SHORT = 1 << 15
_GAP = 1 << 14
# An array in Fortran order is read in tiles of _TILE bytes, in runs of _RUN: 16 runs of 4-byte elements fill lines of
# the cache, and a tile stays in the second level. Measured, 16 KiB to 4 MiB: 1.4 to 3.3 GB/s; longer tiles half.
_TILE = 1 << 18
_RUN = 1 << 14
# For remote files all of these are longer by _FAR: a request takes as long as some MB.
_FAR = 8

_POSITION = threading.Lock()

File = io.FileIO | RemoteFile


def open_file(path: str | os.PathLike[str]) -> File:
    """Open a regular file to read it, without a buffer. A pipe, or a device, is refused at once."""
    if is_remote(path):
        return RemoteFile(*file_system(os.fspath(path)))
    file = io.FileIO(path, opener=lambda name, flags: os.open(name, flags | getattr(os, "O_NONBLOCK", 0)))
    with OnFailure(file.close):
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise FileError("no regular file", "a file on disk")
    return file


def size_of(file: File) -> int:
    """Return the size of an open file, in bytes."""
    return file.size if isinstance(file, RemoteFile) else os.fstat(file.fileno()).st_size


def read_at(file: File, offset: int, into: Array) -> None:
    """Read bytes into an array of them."""
    wanted = into.size
    done = 0
    while done < wanted:
        got = _read_some(file, offset + done, into[done:] if done else into)
        if not got:
            raise FileError(f"an end of the file after {offset + done:,} bytes", f"{offset + wanted:,}, as at first")
        done += got


def write_at(file: io.FileIO, offset: int, data: Array) -> None:
    """Write an array of bytes."""
    done = 0
    while done < data.size:
        done += _write_some(file, offset + done, data[done:] if done else data)


def _read_some(file: File, offset: int, into: Array) -> int:
    if isinstance(file, RemoteFile):
        return file.read_at(offset, into)
    if hasattr(os, "preadv"):
        return os.preadv(file.fileno(), [into.data], offset)
    with _POSITION:  # Windows has no call that takes the position along
        file.seek(offset)
        return file.readinto(into.data) or 0


def _write_some(file: io.FileIO, offset: int, data: Array) -> int:
    if hasattr(os, "preadv"):
        return os.pwrite(file.fileno(), data.data, offset)
    with _POSITION:
        file.seek(offset)
        return file.write(data.data)


def as_bytes(array: Array) -> Array:
    """Return the bytes of a C-contiguous array: Python's files do not take every type of elements."""
    return array.reshape(-1).view(np.uint8)


class Storage(NamedTuple):
    """Where an array's elements are in a file, in which they lie as they do in memory."""

    tensor: Tensor  # in native byte order
    offset: int  # of the first element, in bytes
    fortran: bool = False  # the elements of the first dimension lie side by side
    swapped: bool = False  # they are in the other byte order


class StoredSource(FileSource):
    """An array whose elements lie in a file as `storage` says. The file is closed with the source."""

    def __init__(self, file: File, storage: Storage, dtype: str | None = None) -> None:
        super().__init__(storage.tensor, dtype, file)
        self._file = file
        self._far = 1
        self._turn: contextlib.AbstractContextManager[Any] = contextlib.nullcontext()
        if isinstance(file, RemoteFile):  # one region at a time: it has one position, and each takes more memory
            self._far, self._turn = _FAR, threading.Lock()
            self.buffer_bytes = min(2 * self.nbytes, _FAR * (_SPAN + _TILE) + PIECE)
        self._offset = storage.offset
        self._fortran = storage.fortran and len(self.shape) > 1
        self._swapped = storage.swapped

    def _fill(self, array: Array, region: Region) -> None:
        if not array.size:
            return
        with self._turn:
            if array.shape == self.shape and not self._fortran:
                read_at(self._file, self._offset, as_bytes(array))
            else:
                as_plain = f"{'u' if array.itemsize in (1, 2, 4, 8) else 'V'}{array.itemsize}"
                self._read(array.view(as_plain), [part.start for part in region])
        if self._swapped:
            array.byteswap(inplace=True)

    def _read(self, into: Array, starts: list[int]) -> None:
        """Fill an array with a part of the elements; from Fortran order by tiles that are transposed in the cache."""
        steps = packed_strides(self.shape[::-1] if self._fortran else self.shape, into.itemsize)
        if not self._fortran:
            _fill(self._file, self._offset + _place(starts, steps), steps, into, self._far)
            return
        tile = _tile(into.shape, into.itemsize, self._far)
        scratch = np.empty(math.prod(tile), into.dtype)
        for corner in itertools.product(*map(range, [0] * into.ndim, into.shape, tile)):
            target = into[tuple(map(slice, corner, map(int.__add__, corner, tile)))]
            block = scratch[: target.size].reshape(target.shape[::-1])
            first = _place(list(map(int.__add__, starts, corner))[::-1], steps)
            _fill(self._file, self._offset + first, steps, block, self._far)
            target[...] = block.transpose()


def _place(starts: Sequence[int], steps: tuple[int, ...]) -> int:
    """Return the place of an element in a file, in bytes from the first."""
    return sum(map(int.__mul__, starts, steps))


def _tile(shape: tuple[int, ...], itemsize: int, far: int) -> list[int]:
    """Return the shape of the tiles: long enough in the first dimensions for the file, in the last for the memory."""
    tile = [1] * len(shape)
    axes = range(len(shape))
    for most, order in ((_RUN, axes), (_TILE, reversed(axes))):
        for axis in order:
            tile[axis] = min(shape[axis], tile[axis] * max(1, far * most // itemsize // math.prod(tile)))
    return tile


def _fill(file: File, first: int, steps: tuple[int, ...], into: Array, far: int) -> None:
    """Read elements that are `steps` bytes apart in the file, the first at `first`."""
    runs = math.prod(into.shape[: _outer(into.shape, steps, into.itemsize)])
    if runs == 1:
        read_at(file, first, as_bytes(into))
        return
    if len(into) == 1:
        _fill(file, first, steps[1:], into[0], far)
        return
    span = into.itemsize + sum((size - 1) * step for size, step in zip(into.shape, steps, strict=True))
    run = into.nbytes // runs
    covered = run < far * _SHORT and span <= into.nbytes + runs * far * _GAP
    if covered and span <= far * _SPAN:
        scratch = np.empty(span, np.uint8)
        read_at(file, first, scratch)
        into[...] = np.ndarray(into.shape, into.dtype, scratch, strides=steps)
        return
    if runs == len(into) and not covered:
        for row, data in enumerate(as_bytes(into).reshape(runs, run)):
            read_at(file, first + row * steps[0], data)
        return
    rows = max(1, far * _SPAN // steps[0]) if covered else 1
    for row in range(0, len(into), rows):
        _fill(file, first + row * steps[0], steps, into[row : row + rows], far)


def _outer(shape: tuple[int, ...], steps: tuple[int, ...], itemsize: int) -> int:
    """Return how many dimensions, the first ones, are not within the longest runs that elements form in a file."""
    run = itemsize
    for axis in reversed(range(len(shape))):
        if steps[axis] != run:
            return axis + 1
        run *= shape[axis]
    return 0


class StoredSink:
    """An array in C order in a file, from the byte `offset` on, that is written by regions."""

    def __init__(self, file: io.FileIO, offset: int, tensor: Tensor) -> None:
        self._file = file
        self._offset = offset
        self._dtype = tensor.dtype
        self._steps = packed_strides(tensor.shape, tensor.dtype.itemsize)

    def write(self, region: Region, block: Array) -> None:
        """Write the elements of a region, by runs; of a block in another order _SPAN bytes at a time."""
        check_block(region, block, self._dtype)
        first = self._offset + _place([part.start for part in region], self._steps)
        outer = _outer(block.shape, self._steps, block.itemsize)
        most = block.size if block.flags.c_contiguous else _SPAN // block.itemsize
        tile = (1,) * outer + tile_of(block.shape[outer:], most)
        for corner in itertools.product(*map(range, [0] * block.ndim, block.shape, tile)):
            piece = block[tuple(map(slice, corner, map(int.__add__, corner, tile)))]
            write_at(self._file, first + _place(corner, self._steps), as_bytes(np.ascontiguousarray(piece)))


class StoredWriter(FileWriter):
    """A writer of one array in C order, which follows a header."""

    def __init__(self, target: str, name: str, tensor: Tensor, token: str, header: bytes = b"") -> None:
        super().__init__(target, token)
        self.sinks = {name: StoredSink(self._file, len(header), tensor)}
        with OnFailure(self.discard):
            write_at(self._file, 0, np.frombuffer(header, np.uint8))
