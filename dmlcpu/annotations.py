"""What public functions are annotated with.

Annotations of long types are quoted: `help` prints these names then, and not a thousand characters of NumPy's parts.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array: TypeAlias = NDArray[Any]

Pair: TypeAlias = tuple[Array, Array]
Numbers: TypeAlias = ArrayLike | None

# The words that arguments take.
Mode: TypeAlias = Literal["largest", "smallest"]
Nan: TypeAlias = Literal["greatest", "last"]
Reduction: TypeAlias = Literal["none", "add", "mul", "min", "max"]
OutOfRange: TypeAlias = Literal["raise", "drop", "clip"]
Clipping: TypeAlias = Literal["raise", "clip"]
Metric: TypeAlias = Literal["ip", "l2", "cosine"]

# Types of elements, which results have from arguments.
Element = TypeVar("Element", bound=np.generic)
Position = TypeVar("Position", bound=np.generic)
Stored = TypeVar("Stored", np.int8, np.uint8, np.int16, np.uint16)
DType: TypeAlias = type[Element] | np.dtype[Element]
Wide: TypeAlias = float | Sequence[float] | NDArray[np.float32] | NDArray[np.float64]  # not of 16 bits

# Types of arrays in named tuples, and what calls of an operator return. Type checkers know defaults in any version,
# Python from 3.13 on.
if TYPE_CHECKING:
    from typing_extensions import TypeVar as TypeVarWithDefault

    Values = TypeVarWithDefault("Values", default=Array)
    Indices = TypeVarWithDefault("Indices", default=Array)
    Result = TypeVarWithDefault("Result", default=Any, covariant=True)
else:
    Values = TypeVar("Values")
    Indices = TypeVar("Indices")
    Result = TypeVar("Result", covariant=True)
