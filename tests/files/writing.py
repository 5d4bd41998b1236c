import os
from pathlib import Path

import numpy as np

from dmlcpu.common.regions import Tensor
from dmlcpu.files import create, open_source, write_whole
from dmlcpu.files.targets import stray


def everything(shape: tuple[int, ...]) -> tuple[slice, ...]:
    """Return the region that is all of an array."""
    return tuple(slice(0, size) for size in shape)


def write(path: Path, **arrays: np.ndarray) -> None:
    tensors = {name: Tensor(array.shape, array.dtype) for name, array in arrays.items()}
    write_whole(create(path, tensors, "0a1b"), arrays)


def contents(folder: Path) -> list[str]:
    """Return the names of all that is in a folder."""
    return sorted(path.name for path in folder.iterdir())


def check_reads(path: Path | str, array: np.ndarray, name: str | None = None, *, in_regions: bool = True) -> None:
    """Read an array of a file whole, into an array that is there, and a region of it."""
    with open_source(path, name) as source:
        native = array.dtype.newbyteorder("=")
        assert (source.shape, source.dtype, source.nbytes) == (array.shape, native, array.nbytes)
        assert source.in_regions == in_regions
        for into in (None, np.empty(array.shape, native)):
            got = source.read(into=into)
            assert into is None or got is into
            assert got.dtype.isnative
            assert got.flags.c_contiguous
            assert got.tobytes() == array.astype(native).tobytes()
        region = tuple(slice(size // 3, size) for size in array.shape)
        assert source.read(region).tobytes() == array[region].astype(native).tobytes()


def strays(*targets: Path) -> list[Path]:
    """Return what killed runs have left of targets, where links lead."""
    files = {os.path.realpath(target) for target in targets}
    return stray({os.path.dirname(file) for file in files}, files.__contains__)
