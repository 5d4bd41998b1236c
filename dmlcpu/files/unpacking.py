"""Unpacking bytes that may be anything: no more comes out of them than is wanted. This module imports numcodecs."""

import bz2
import gzip
import io
import lzma
import zlib
from collections.abc import Mapping
from typing import Any

import numcodecs
import numpy as np

from dmlcpu.common.arguments import Array
from dmlcpu.files.base import FileError

CODECS = ("blosc", "bz2", "gzip", "lz4", "lzma", "zlib", "zstd")
_SIZED = {"blosc": (slice(4, 8), numcodecs.Blosc), "lz4": (slice(4), numcodecs.LZ4)}  # where the size is in the bytes
_LENGTH = slice(12, 16)  # where blosc's packed size is
_SPARE = 1 << 10
_FRAME = bytes.fromhex("28b52ffd")  # what a frame of zstd's begins with


def longer(nbytes: int) -> int:
    """Return how long packed bytes may be: those that cannot be compressed become longer."""
    return nbytes + nbytes // 8 + _SPARE


def unpack(codec: str, packed: Array, most: int, *, exact: bool, options: Mapping[str, Any]) -> Any:
    """Unpack up to `most` bytes, or refuse more. exact: they should be as many; options: those of the codec."""
    if packed.size > longer(most):
        raise FileError(f"a chunk of {packed.size:,} bytes", f"at most {longer(most):,}, as its shape needs")
    if codec == "zstd":
        return _of_zstd(packed, most, exact=exact)
    if codec in _SIZED:
        place, library = _SIZED[codec]
        _check(int.from_bytes(packed[place], "little"), most)
        if codec == "blosc" and (length := int.from_bytes(packed[_LENGTH], "little")) != packed.size:
            # The library reads as many bytes as the header says, also beyond the chunk's end.
            raise FileError(f"a chunk of {packed.size:,} bytes", f"{length:,}, as its header says")
        return library().decode(packed)
    unpacked = _of_stream(codec, packed, most + 1, options)
    if len(unpacked) > most:
        raise FileError(f"a chunk that unpacks to more than {most:,} bytes", f"{most:,}, as its shape needs")
    return unpacked


def _check(size: int, most: int) -> None:
    if size > most:
        raise FileError(f"a chunk that unpacks to {size:,} bytes", f"{most:,}, as its shape needs")


def _of_stream(codec: str, packed: Array, most: int, options: Mapping[str, Any]) -> bytes:
    """Return up to `most` of the bytes that are packed."""
    if codec == "zlib":
        return zlib.decompressobj().decompress(packed.data, most)
    file = io.BytesIO(packed.data)
    if codec == "gzip":
        return gzip.GzipFile(fileobj=file).read(most)
    if codec == "bz2":
        return bz2.BZ2File(file).read(most)
    return lzma.LZMAFile(file, format=options.get("format"), filters=options.get("filters")).read(most)


def _of_zstd(packed: Array, most: int, *, exact: bool) -> Array:
    size = _size_of_frame(packed)
    if size is None:
        if not exact:
            raise FileError("a frame of zstd that does not say its size", "one that does")
        size = most
    _check(size, most)
    # More frames may follow that say nothing, or something else. So the library gets the array to unpack into: what is
    # longer is an error.
    unpacked = np.empty(size, np.uint8)
    numcodecs.Zstd().decode(packed, out=unpacked)
    return unpacked


def _size_of_frame(packed: Array) -> int | None:
    """Return the size that the first frame of zstd's says it has, if it does."""
    if packed[:4].tobytes() != _FRAME or packed.size < 5:
        return None
    descriptor = int(packed[4])
    in_one_segment = descriptor >> 5 & 1
    width = (in_one_segment, 2, 4, 8)[descriptor >> 6]
    start = 6 - in_one_segment + (0, 1, 2, 4)[descriptor & 3]  # after the window's size and the dictionary's name
    if not width:
        return None
    return int.from_bytes(packed[start : start + width], "little") + (256 if width == 2 else 0)
