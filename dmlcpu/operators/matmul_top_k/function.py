"""matmul_top_k: the k best scores of each row of a product of 8-bit matrices, whose scores are never written."""

from typing import Any, Generic, NamedTuple, get_args, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dmlcpu import reference
from dmlcpu.annotations import Array, Mode, Nan, Numbers, Pair, Values
from dmlcpu.common.arguments import as_integer, check_apart, check_choice, check_output, check_tuple
from dmlcpu.common.parameters import as_floats, as_integers
from dmlcpu.errors import DmlError
from dmlcpu.kernels.gemm.candidates import MOST_COLUMNS
from dmlcpu.products.operands import shapes_of
from dmlcpu.products.packing import PackedMatrix, unpack
from dmlcpu.products.quantization import check_matrix, scale, spread, zero_point
from dmlcpu.products.selection import Operands, Order, select
from dmlcpu.runtime.compilation import can_compile
from dmlcpu.runtime.results import empty_result

_NAME = "matmul_top_k"
_MODES, _NANS = get_args(Mode), get_args(Nan)
_FLOAT, _INT, _INDEX = np.dtype(np.float32), np.dtype(np.int32), np.dtype(np.int64)


class MatmulTopK(NamedTuple, Generic[Values]):
    """What `matmul_top_k` returns.

    Attributes
    ----------
    values : ndarray
        The selected scores of each row, best first.
    indices : ndarray
        Their columns.
    """

    values: Values
    indices: NDArray[np.int64]


class Call(NamedTuple):
    """The arguments of a call in their plain forms, but for the outputs."""

    operands: Operands
    order: Order
    shape: tuple[int, ...]  # of the results, without the dimension that a 1-D operand drops

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the scores."""
        return _FLOAT if self.order.is_scaled else _INT


@overload
def matmul_top_k(
    a: ArrayLike,
    b: ArrayLike | PackedMatrix,
    k: int,
    *,
    a_scale: None = None,
    a_zero_point: ArrayLike | None = None,
    b_scale: None = None,
    b_zero_point: ArrayLike | None = None,
    bias: ArrayLike | None = None,
    mode: Mode = "largest",
    nan: Nan = "greatest",
    out: tuple[Array, Array] | None = None,
) -> MatmulTopK[NDArray[np.int32]]: ...
@overload
def matmul_top_k(
    a: ArrayLike,
    b: ArrayLike | PackedMatrix,
    k: int,
    *,
    a_scale: ArrayLike,
    a_zero_point: ArrayLike | None = None,
    b_scale: ArrayLike | None = None,
    b_zero_point: ArrayLike | None = None,
    bias: ArrayLike | None = None,
    mode: Mode = "largest",
    nan: Nan = "greatest",
    out: tuple[Array, Array] | None = None,
) -> MatmulTopK[NDArray[np.float32]]: ...
@overload
def matmul_top_k(
    a: ArrayLike,
    b: ArrayLike | PackedMatrix,
    k: int,
    *,
    a_scale: None = None,
    a_zero_point: ArrayLike | None = None,
    b_scale: ArrayLike,
    b_zero_point: ArrayLike | None = None,
    bias: ArrayLike | None = None,
    mode: Mode = "largest",
    nan: Nan = "greatest",
    out: tuple[Array, Array] | None = None,
) -> MatmulTopK[NDArray[np.float32]]: ...
def matmul_top_k(
    a: "ArrayLike",
    b: "ArrayLike | PackedMatrix",
    k: int,
    *,
    a_scale: "Numbers" = None,
    a_zero_point: "Numbers" = None,
    b_scale: "Numbers" = None,
    b_zero_point: "Numbers" = None,
    bias: "Numbers" = None,
    mode: "Mode" = "largest",
    nan: "Nan" = "greatest",
    out: "Pair | None" = None,
) -> "MatmulTopK":
    """Multiply two 8-bit matrices and select the k largest or smallest scores of each row, in one pass.

    The result has the bits of two calls, on every machine and with any number of threads::

        top_k(matmul_integer(a, a_zero_point, b, b_zero_point), k)                                        # no scales
        top_k(matmul_integer_to_float(a, a_scale, a_zero_point, b, b_scale, b_zero_point, bias), k)       # scales

    but the scores are not written: it takes as much memory as the result, and some MiB. On many threads, or for a k of
    thousands, these are more: about k KiB for each thread.

    Parameters
    ----------
    a : array_like of int8 or uint8, shape (..., M, K) or (K,)
    b : array_like of int8 or uint8, shape (..., K, N), or PackedMatrix
        To search among N vectors of K bytes, give the transpose of their array, ``vectors.T``. What is searched often
        with many rows of `a` is best packed once, by `pack_b`.
    k : int
        How many scores of each row to select, 0 to N.
    a_scale : array_like of floats, optional
        One number, or one a row: shape (M,) or (..., M, 1). With a scale, scores are float32, and the scale that is not
        given is 1; without any they are the integer sums.
    a_zero_point : array_like of a's type, optional
        The same choice of shapes. Python integers are converted.
    b_scale : array_like of floats, optional
        As for `a`, but one a column: shape (N,) or (..., 1, N).
    b_zero_point : array_like of b's type, optional
        The same.
    bias : array_like, optional
        What is added to the scores: one number, or one a column. Floats with scales; without, integers of 32 bits.
    mode : {"largest", "smallest"}, default "largest"
        Which scores to select, and the order in which they come.
    nan : {"greatest", "last"}, default "greatest"
        Where NaN ranks: above +inf, or last in both modes.
    out : tuple of two ndarrays, optional
        Where to write values and indices: of their shape and types, any strides, no memory shared with `a`, `b`,
        `bias` or with one another.

    Returns
    -------
    MatmulTopK
        A named tuple (values, indices): int32 or float32, and int64, of shape (..., M, k), or (k,) if `a` has one
        dimension.

    Raises
    ------
    DmlError
        If an argument does not fit; nothing has been written then.
    TypeError
        If an argument is of the wrong Python kind.

    Notes
    -----
    DirectML has no such operator. The semantics are those of its ``DML_MATRIX_MULTIPLY_INTEGER_OPERATOR_DESC`` or
    ``DML_MATRIX_MULTIPLY_INTEGER_TO_FLOAT_OPERATOR_DESC``, and then ``DML_TOP_K1_OPERATOR_DESC``. Sums beyond 32 bits
    wrap if there are no scales.

    Examples
    --------
    >>> import numpy as np, dmlcpu
    >>> vectors = np.array([[1, 0], [3, 4], [0, 2], [3, 4]], np.int8)
    >>> dmlcpu.matmul_top_k(np.array([2, 1], np.int8), vectors.T, 2)
    MatmulTopK(values=array([10, 10], dtype=int32), indices=array([1, 3]))
    >>> dmlcpu.matmul_top_k(np.array([[2, 1]], np.int8), vectors.T, 2, b_scale=[1, 0.5, 1, 0.25]).values
    array([[5. , 2.5]], dtype=float32)
    """
    call = check(a, b, k, a_scale, a_zero_point, b_scale, b_zero_point, bias, mode, nan)
    result = allocate(call, out)
    execute(call, result)
    return result


def check(
    a: Any,
    b: Any,
    k: Any,
    a_scale: Any,
    a_zero_point: Any,
    b_scale: Any,
    b_zero_point: Any,
    bias: Any,
    mode: Any,
    nan: Any,
) -> Call:
    """Return the arguments in their plain forms, or refuse them."""
    a = check_matrix(_NAME, "a", a)
    if not isinstance(b, PackedMatrix):
        b = check_matrix(_NAME, "b", b, at_least=2)
    left, _, rows, columns, _, matrix, shape = shapes_of(_NAME, a.shape, b.shape)
    n = matrix[-1]
    if n > MOST_COLUMNS:
        raise DmlError(_NAME, "b.shape", str(b.shape), f"at most {MOST_COLUMNS} columns")
    k = as_integer(_NAME, "k", k)
    if not 0 <= k <= n:
        raise DmlError(_NAME, "k", str(k), f"0 to {n} (the columns of b)")
    check_choice(_NAME, "mode", mode, _MODES)
    check_choice(_NAME, "nan", nan, _NANS)
    is_scaled = not (a_scale is None and b_scale is None)
    operands = Operands(
        a if len(left) == a.ndim else a[None, :],
        b,
        _scale("a_scale", a_scale, rows, is_scaled, True),
        zero_point(_NAME, "a_zero_point", a_zero_point, a.dtype, rows, rows=True),
        _scale("b_scale", b_scale, columns, is_scaled, False),
        zero_point(_NAME, "b_zero_point", b_zero_point, b.dtype, columns, rows=False),
        None if bias is None else _bias(bias, columns, is_scaled),
    )
    return Call(operands, Order(k, is_scaled, mode == "largest", nan == "last"), (*shape[:-1], k))


def _scale(field: str, value: Any, shape: tuple[int, ...], is_scaled: bool, rows: bool) -> Array | None:
    """Return a scale, or None if scores have none."""
    if not is_scaled:
        return None
    return scale(_NAME, field, 1.0 if value is None else value, shape, rows=rows, positive=False)


def _bias(value: Any, shape: tuple[int, ...], is_scaled: bool) -> Array:
    """Return a bias as float32 or int32 in a shape that broadcasts to (..., 1, N)."""
    array = as_floats(_NAME, "bias", value) if is_scaled else as_integers(_NAME, "bias", value, _INT, "int32")
    return spread(_NAME, "bias", array, shape, False).copy()


def allocate(call: Call, out: Any) -> MatmulTopK:
    """Return the output arrays: new ones, or those of `out` if they fit."""
    if out is None:
        return MatmulTopK(empty_result(call.shape, call.dtype), empty_result(call.shape, _INDEX))
    check_tuple(_NAME, out, 2, "a tuple (values, indices) of two arrays")
    values = check_output(_NAME, "out[0]", out[0], call.shape, call.dtype)
    indices = check_output(_NAME, "out[1]", out[1], call.shape, _INDEX)
    a, b = call.operands.a, call.operands.b
    others = {"a": a} if isinstance(b, PackedMatrix) else {"a": a, "b": b}
    check_apart(_NAME, "out[0]", values, {**others, "out[1]": indices})
    check_apart(_NAME, "out[1]", indices, others)
    return MatmulTopK(values, indices)


def execute(call: Call, out: tuple[Array, Array], *, most_threads: int | None = None) -> None:
    """Run a call on arrays of any strides."""
    values, indices = out
    if values.size == 0:
        return
    operands, order = call.operands, call.order
    if values.ndim < max(operands.a.ndim, len(operands.b.shape)):
        values, indices = values[..., None, :], indices[..., None, :]
    if can_compile():
        select(operands, order, values, indices, most_threads=most_threads)
        return
    b = unpack(operands.b) if isinstance(operands.b, PackedMatrix) else operands.b
    named = operands._replace(b=b)._asdict()
    named.pop("mask")
    mode: Mode = "largest" if order.is_largest else "smallest"
    nan: Nan = "last" if order.nan_last else "greatest"
    reference.matmul_top_k(**named, k=order.k, mode=mode, nan=nan, out=(values, indices))
