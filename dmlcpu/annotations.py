"""Types in the annotations of public functions.

Long types are quoted, so that `help` prints these names and not their expansions, a thousand characters each.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array: TypeAlias = NDArray[Any]

Pair: TypeAlias = tuple[Array, Array]
Numbers: TypeAlias = ArrayLike | None

# Strings that arguments accept.
Mode: TypeAlias = Literal["largest", "smallest"]
Nan: TypeAlias = Literal["greatest", "last"]
Reduction: TypeAlias = Literal["none", "add", "mul", "min", "max"]
OutOfRange: TypeAlias = Literal["raise", "drop", "clip"]
Clipping: TypeAlias = Literal["raise", "clip"]
Metric: TypeAlias = Literal["ip", "l2", "cosine"]

# Element types, which results take from arguments.
Element = TypeVar("Element", bound=np.generic)
Position = TypeVar("Position", bound=np.generic)
Stored = TypeVar("Stored", np.int8, np.uint8, np.int16, np.uint16)
DType: TypeAlias = type[Element] | np.dtype[Element]
Wide: TypeAlias = float | Sequence[float] | NDArray[np.float32] | NDArray[np.float64]  # no 16-bit types

# Array types in named tuples, and what operator calls return. Type checkers support defaults in any version, Python
# from 3.13 on.
if TYPE_CHECKING:
    from typing_extensions import TypeVar as TypeVarWithDefault

    Values = TypeVarWithDefault("Values", default=Array)
    Indices = TypeVarWithDefault("Indices", default=Array)
    Result = TypeVarWithDefault("Result", default=Any, covariant=True)
else:
    Values = TypeVar("Values")
    Indices = TypeVar("Indices")
    Result = TypeVar("Result", covariant=True)
