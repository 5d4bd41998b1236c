"""DYNAMIC_QUANTIZE_LINEAR: an array quantized by the range of its own elements."""

import functools
from collections.abc import Mapping
from typing import Any, Generic, NamedTuple, overload

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from dmlcpu.annotations import Array, DType, Element, Values
from dmlcpu.common.arguments import as_dtype, check_apart, check_output, check_tuple
from dmlcpu.common.bound import Steps
from dmlcpu.common.stand_ins import stand_in
from dmlcpu.errors import DmlError
from dmlcpu.quantizers.arguments import FLOATS, check_input
from dmlcpu.quantizers.layout import Layout, Shape, layout_of
from dmlcpu.quantizers.plan import FLOAT, Plan, plan, run_dynamic
from dmlcpu.reference import dynamic_quantize_linear as reference_dynamic_quantize_linear
from dmlcpu.runtime import threads
from dmlcpu.runtime.compilation import can_compile
from dmlcpu.runtime.memory import PLAIN, frombuffer, packed_strides, words
from dmlcpu.runtime.results import empty_result

NAME = "dynamic_quantize_linear"
_TYPES = ("uint8", "int8")
_BYTE = np.dtype(np.uint8)


class DynamicQuantized(NamedTuple, Generic[Values]):
    """What `dynamic_quantize_linear` returns.

    Attributes
    ----------
    y : ndarray
        The integers.
    scale : ndarray, shape ()
        The step, of float32.
    zero_point : ndarray, shape ()
        The integer that 0 becomes, of y's type.
    """

    y: Values
    scale: NDArray[np.float32]
    zero_point: Values


class Call(NamedTuple):
    """The checked arguments of a call."""

    x: Array  # in blocks a stand-in
    dtype: np.dtype[Any]


@overload
def dynamic_quantize_linear(
    x: ArrayLike, *, out: tuple[Array, Array, Array] | None = None
) -> DynamicQuantized[NDArray[np.uint8]]: ...
@overload
def dynamic_quantize_linear(
    x: ArrayLike, *, out_dtype: DType[Element], out: tuple[Array, Array, Array] | None = None
) -> DynamicQuantized[NDArray[Element]]: ...
@overload
def dynamic_quantize_linear(
    x: ArrayLike, *, out_dtype: DTypeLike, out: tuple[Array, Array, Array] | None = None
) -> DynamicQuantized: ...
def dynamic_quantize_linear(
    x: "ArrayLike", *, out_dtype: "DTypeLike" = np.uint8, out: "tuple[Array, Array, Array] | None" = None
) -> "DynamicQuantized":
    """Quantize an array to 8 bits by the range of its own elements.

    The range is that of the elements and 0. A 255th of it, as float32, is the scale; the zero point is what 0 becomes.

    Parameters
    ----------
    x : array_like
        float32, float16, bfloat16 (of ``ml_dtypes``) or float64, which is rounded to float32 first; finite; any shape
        and memory layout.
    out_dtype : dtype, default uint8
        uint8 or int8.
    out : tuple of three ndarrays, optional
        Where to write the results: of x's shape and `out_dtype`, of shape () and float32, of shape () and `out_dtype`;
        no memory shared with `x` or with one another.

    Returns
    -------
    DynamicQuantized
        A named tuple (y, scale, zero_point); the arrays of `out` if given.

    Raises
    ------
    DmlError
        If an argument does not fit: an element is not finite, or the range exceeds float32; nothing has been written
        then.
    TypeError
        If an argument is of the wrong Python kind.

    Notes
    -----
    The semantics are those of DirectML's ``DML_DYNAMIC_QUANTIZE_LINEAR_OPERATOR_DESC`` and of ONNX
    DynamicQuantizeLinear 11, which has uint8 alone. The scale of zeros, and of no elements, is 1.

    Examples
    --------
    >>> import numpy as np, dmlcpu
    >>> y, scale, zero_point = dmlcpu.dynamic_quantize_linear(np.array([0, 2, -3, -2.5, 1.34, 0.5], np.float32))
    >>> y
    array([153, 255,   0,  26, 221, 179], dtype=uint8)
    >>> scale, zero_point
    (array(0.01960784, dtype=float32), array(153, dtype=uint8))
    """
    if type(x) is np.ndarray and x.flags.num & PLAIN == PLAIN and out is None and can_compile():
        wanted: Any = out_dtype
        try:
            plain = _plain(x.shape, x.dtype, wanted, threads.most())
            if plain and not plain[0].is_single:
                plain = _plain(x.shape, x.dtype, wanted, threads.budget())
        except (TypeError, DmlError):  # `check` says what is wrong
            plain = None
        if plain:
            chosen, dtype, word = plain
            result = DynamicQuantized(empty_result(x.shape, dtype), np.empty((), FLOAT), np.empty((), dtype))
            y, scale, zero = result
            if run_dynamic(
                chosen, frombuffer(x, word), frombuffer(scale, FLOAT), frombuffer(zero, _BYTE), frombuffer(y, _BYTE)
            ):
                return result
    call = check(x, out_dtype)
    result = allocate(call, out)
    execute(call, result)
    return result


@functools.lru_cache(maxsize=1024, typed=True)
def _plain(
    shape: Shape, dtype: np.dtype[Any], out_dtype: Any, budget: threads.Budget
) -> tuple[Plan, np.dtype[Any], np.dtype[Any]] | None:
    """Return the plan of calls with a packed x, the type of y and x's words; None if no kernel reads x as it is."""
    call = check(stand_in(shape, dtype), out_dtype)
    if 0 in shape or not dtype.isnative or dtype == np.float64:
        return None
    of_x, of_y = (Layout(shape, packed_strides(shape), each.name) for each in (dtype, call.dtype))
    return plan_of(of_x, of_y, budget), call.dtype, of_x.word


def plan_of(x: Layout, y: Layout, budget: threads.Budget) -> Plan:
    """Return the plan for tensors of these layouts."""
    one = (1,) * len(x.shape), (0,) * len(x.shape)
    return plan(NAME, x, Layout(*one, "float32"), Layout(*one, y.type), y, budget)


def check(x: Any, out_dtype: Any) -> Call:
    """Return the arguments in their plain forms, or refuse them."""
    return Call(check_input(NAME, x, FLOATS), as_dtype(NAME, "out_dtype", out_dtype, _TYPES))


def allocate(call: Call, out: Any) -> DynamicQuantized:
    """Return the outputs: new arrays, or those of `out` if they fit."""
    if out is None:
        return DynamicQuantized(
            empty_result(call.x.shape, call.dtype), np.empty((), np.float32), np.empty((), call.dtype)
        )
    check_tuple(NAME, out, 3, "a tuple (y, scale, zero_point) of three arrays")
    wanted = ((call.x.shape, call.dtype), ((), FLOAT), ((), call.dtype))
    arrays = [check_output(NAME, f"out[{i}]", out[i], *each) for i, each in enumerate(wanted)]
    others = {"x": call.x}
    for i, array in enumerate(arrays):
        check_apart(NAME, f"out[{i}]", array, others)
        others[f"out[{i}]"] = array
    return DynamicQuantized._make(arrays)


def execute(call: Call, out: tuple[Array, Array, Array], *, operator: str = NAME, field: str = "x") -> None:
    """Run a call on arrays of any strides; operator, field: what x is called if it has no finite range."""
    x = as_floats(call.x)
    if x.size == 0 or not can_compile():
        check_range(call.x, operator, field)
        reference_dynamic_quantize_linear(x, out_dtype=out[0].dtype, out=out)
    elif not run_dynamic(plan_of(layout_of(x), layout_of(out[0]), threads.budget()), *words_of(x, out)):
        check_range(call.x, operator, field)


def as_floats(x: Array) -> Array:
    """Return x as the kernels take it: float64 is rounded to float32."""
    if x.dtype != np.float64:
        return x
    with np.errstate(all="ignore"):
        return x.astype(FLOAT)


def words_of(x: Array, out: tuple[Array, Array, Array]) -> list[Array]:
    """Return what the kernels read and write."""
    y, scale, zero_point = out
    return [words(x, layout_of(x).word), words(scale, FLOAT), words(zero_point, _BYTE), words(y, _BYTE)]


def check_range(x: Array, operator: str, field: str, start: Shape = ()) -> None:
    """Refuse elements that are not finite, and ranges beyond float32; start: the place of x in a larger array."""
    with np.errstate(all="ignore"):
        values = x.astype(FLOAT)
        bad = ~np.isfinite(values)
        if bad.any():
            where = [int(i) for i in np.unravel_index(int(bad.argmax()), bad.shape)]
            place = [i + j for i, j in zip(where, start or (0,) * x.ndim, strict=True)]
            found = str(x[tuple(where)])
            raise DmlError(operator, f"{field}[{', '.join(map(str, place))}]", found, "finite float32 numbers")
        check_limits(np.float32(values.min(initial=0)), np.float32(values.max(initial=0)), operator, field)


def check_limits(low: np.float32, high: np.float32, operator: str, field: str) -> None:
    """Refuse a range beyond float32."""
    with np.errstate(all="ignore"):
        if not high - low < np.inf:
            raise DmlError(operator, field, f"from {low!s} to {high!s}", "elements whose range is a finite float32")


def steps(
    call: Call, out: tuple[Array, Array, Array], given: Mapping[str, Any], operator: str = NAME, field: str = "x"
) -> Steps | None:
    """Return how a call runs on the same arrays again and again, or None if that takes all its checks."""
    x, y = call.x, out[0]
    if x is not given[field] or x.size == 0 or x.dtype == np.float64:
        return None
    flat, layouts = words_of(x, out), (layout_of(x), layout_of(y))

    def run(chosen: Plan) -> None:
        if not run_dynamic(chosen, *flat):
            check_range(x, operator, field)

    return Steps(functools.partial(plan_of, *layouts), run, lambda chosen: None)
