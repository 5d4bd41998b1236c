from pathlib import Path

import numpy as np

from dmlcpu.batch.files import create
from dmlcpu.common.regions import Tensor


def everything(shape: tuple[int, ...]) -> tuple[slice, ...]:
    """Return the region that is all of an array."""
    return tuple(slice(0, size) for size in shape)


def write(path: Path, **arrays: np.ndarray) -> None:
    """Write arrays as a job does."""
    writer = create(path, {name: Tensor(array.shape, array.dtype) for name, array in arrays.items()}, "0a1b")
    for name, array in arrays.items():
        writer.sinks[name].write(everything(array.shape), array)
    writer.finish()
    writer.put_in_place()


def contents(folder: Path) -> list[str]:
    """Return the names of all that is in a folder."""
    return sorted(path.name for path in folder.iterdir())
