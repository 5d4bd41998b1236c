"""The checks of the arguments of sorts."""

from collections.abc import Iterable
from typing import Any, NamedTuple, NoReturn, get_args

import numpy as np

from dmlcpu.annotations import Nan
from dmlcpu.common.arguments import as_axis, as_dtype, as_integer, check_choice, check_flag, check_type, type_name
from dmlcpu.common.data_types import DATA_TYPES, INDICES, NUMBERS
from dmlcpu.common.forms import AnyForm, Form, formed
from dmlcpu.errors import DmlError

INT64 = np.dtype(np.int64)
_STABLE, _AXIS, _DESCENDING = "leave it out, as the order is always stable", "write axis=", "write descending="
_INSTEAD = {  # of the arguments of other sorts
    **dict.fromkeys(("kind", "stable"), _STABLE),
    **dict.fromkeys(("dim", "dimension"), _AXIS),
    **dict.fromkeys(("largest", "reverse", "ascending"), _DESCENDING),
    "order": "leave it out, as elements have no fields",
}
_NANS = get_args(Nan)
_MOST = 1 << 32  # elements of a sequence: words of kernels have 32 bits for a position

Options = tuple[Any, ...]


class Call(NamedTuple):
    """A checked call."""

    operator: str
    x: Form
    axis: int
    descending: bool
    nan_last: bool
    has_values: bool
    index_dtype: np.dtype[Any] | None  # None: no positions are wanted


def refuse_others(operator: str, others: Iterable[str]) -> NoReturn:
    """Refuse keywords that the function does not have; for those of NumPy's and PyTorch's sorts say what to write."""
    name = next(iter(others))
    hint = f"; {_INSTEAD[name]}" if name in _INSTEAD else ""
    raise TypeError(f"{operator}() got an unexpected keyword argument {name!r}{hint}")


def request(
    operator: str, x: Any, axis: Any, descending: Any, nan: Any, index_dtype: Any
) -> tuple[Any, AnyForm, Options]:
    """Return x as an array, its form, and the options of `check`."""
    x, form = formed(operator, "x", x)
    if type(axis) is not int:  # in a key, 1.0 and True would be 1
        axis = as_integer(operator, "axis", axis)
    if type(descending) is not bool:
        descending = check_flag(operator, "descending", descending)
    if type(index_dtype) is not type and isinstance(index_dtype, np.generic):
        index_dtype = index_dtype.dtype
    return x, form, (axis, descending, nan, index_dtype)


def check(operator: str, form: AnyForm, options: Options) -> Call:
    """Return the checked call, or refuse it. form: of x; options: axis, descending, nan and index_dtype."""
    axis, descending, nan, index_dtype = options
    x = Form(*form)
    check_type(operator, "x", x.dtype, NUMBERS)
    if not x.shape:
        raise DmlError(operator, "x.ndim", "0", "at least 1")
    axis = as_axis(operator, "axis", axis, "x", len(x.shape))
    n = x.shape[axis]
    if n > _MOST:
        raise DmlError(operator, "x.shape", str(x.shape), f"at most {_MOST} elements along axis {axis}")
    check_choice(operator, "nan", nan, _NANS)
    index_type = None
    if operator != "sort":
        index_type = as_dtype(operator, "index_dtype", index_dtype, INDICES)
        if n - 1 > DATA_TYPES[type_name(index_type)].highest:
            raise DmlError(operator, "index_dtype", str(index_type), f"a type that holds {n - 1}")
    return Call(operator, x, axis, descending, nan == "last", operator != "argsort", index_type)
