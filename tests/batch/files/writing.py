from pathlib import Path

import numpy as np

from dmlcpu.batch.files import create, write_whole
from dmlcpu.common.regions import Tensor


def everything(shape: tuple[int, ...]) -> tuple[slice, ...]:
    """Return the region that is all of an array."""
    return tuple(slice(0, size) for size in shape)


def write(path: Path, **arrays: np.ndarray) -> None:
    """Write whole arrays to a file."""
    tensors = {name: Tensor(array.shape, array.dtype) for name, array in arrays.items()}
    write_whole(create(path, tensors, "0a1b"), arrays)


def contents(folder: Path) -> list[str]:
    """Return the names of all that is in a folder."""
    return sorted(path.name for path in folder.iterdir())
