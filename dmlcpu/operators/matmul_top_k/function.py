"""matmul_top_k: the k best scores of each row of a product of 8-bit matrices; scores are never written."""

import functools
from typing import Any, Generic, NamedTuple, get_args, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dmlcpu.annotations import Array, Mode, Nan, Numbers, Pair, Values
from dmlcpu.common.arguments import as_integer, check_apart, check_choice, check_output, check_tuple
from dmlcpu.common.forms import Form, Shape, formed
from dmlcpu.common.parameters import as_floats, as_integers
from dmlcpu.common.prepared import Prepared, Request
from dmlcpu.common.regions import Tensor
from dmlcpu.errors import BindingError, DmlError
from dmlcpu.kernels.gemm.table import UNPACKED
from dmlcpu.kernels.selection.candidates import MOST_COLUMNS
from dmlcpu.products.arguments import (
    ABSENT,
    apart,
    check_matrix,
    matrix_strides,
    parameters_of,
    rhs_form,
    shapes_of,
    spread,
    spread_all,
)
from dmlcpu.products.packing import PackedMatrix, form_of_packed
from dmlcpu.runtime.threads import Budget, plan_for_now
from dmlcpu.selection.call import INDEX, Call, Order, rhs_layout
from dmlcpu.selection.exclusions import allowed_of
from dmlcpu.selection.plan import plan

NAME = "matmul_top_k"
_MODES, _NANS = get_args(Mode), get_args(Nan)
_FLOAT, _INT = np.dtype(np.float32), np.dtype(np.int32)


class MatmulTopK(NamedTuple, Generic[Values]):
    """The result of `matmul_top_k`.

    Attributes
    ----------
    values : ndarray
        The selected scores of each row, best first.
    indices : ndarray
        Their columns.
    """

    values: Values
    indices: NDArray[np.int64]


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
    mask: ArrayLike | None = None,
    exclude: Any = None,
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
    mask: ArrayLike | None = None,
    exclude: Any = None,
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
    mask: ArrayLike | None = None,
    exclude: Any = None,
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
    mask: "ArrayLike | None" = None,
    exclude: Any = None,
    out: "Pair | None" = None,
) -> "MatmulTopK":
    """Multiply two 8-bit matrices and select the k largest or smallest scores of each row, in one pass.

    The result has the bits of two calls, on every machine and with any number of threads::

        top_k(matmul_integer(a, a_zero_point, b, b_zero_point), k)                                        # no scales
        top_k(matmul_integer_to_float(a, a_scale, a_zero_point, b, b_scale, b_zero_point, bias), k)       # scales

    The scores are not stored. In addition to the result, a call needs some MiB of memory; with many threads, or if k is
    in the thousands, about k KiB for each thread. A mask or exclusions for each row need one bit for each score.

    Parameters
    ----------
    a : array_like of int8 or uint8, shape (..., M, K) or (K,)
    b : array_like of int8 or uint8, shape (..., K, N), or PackedMatrix
        To search among N vectors of K bytes, pass the transpose of their array, ``vectors.T``. For many searches with
        many rows of `a`, pack the transpose once, with `pack_b`.
    k : int
        How many scores of each row to select, 0 to N.
    a_scale : array_like of floats, optional
        One number, or one for each row: shape (M,) or (..., M, 1). With a scale, scores are float32, and a missing
        scale is 1; without scales they are the integer sums.
    a_zero_point : array_like of a's type, optional
        The same shapes as `a_scale`. Python integers are converted.
    b_scale : array_like of floats, optional
        As for `a`, but one for each column: shape (N,) or (..., 1, N).
    b_zero_point : array_like of b's type, optional
        The same shapes as `b_scale`.
    bias : array_like, optional
        Added to the scores: one number, or one for each column. Floats if there are scales, else 32-bit integers.
    mode : {"largest", "smallest"}, default "largest"
        Whether to select the largest scores, largest first, or the smallest, smallest first.
    nan : {"greatest", "last"}, default "greatest"
        The rank of NaN: above +inf, or last in both modes.
    mask : array_like of bool, shape (N,) or (M, N), optional
        Which columns may be selected: the same for all rows, or others for each row. Not supported for batches.
    exclude : optional
        The columns of each row that are not selected: M lists of ints; the nonzero elements of a SciPy sparse matrix
        (M, N); the arrays (indptr, indices) of such a matrix; or a bool array (M, N). Columns from N on are
        ignored. For one row, a list of ints is also accepted. Not supported for batches.
    out : tuple of two ndarrays, optional
        Where to write values and indices: of their shape and types, any strides, no memory shared with `a`, `b`,
        `bias` or with one another.

    Returns
    -------
    MatmulTopK
        A named tuple (values, indices) of shape (..., M, k), or (k,) if `a` has one dimension. Values are int32 or
        float32, indices int64. If fewer than k columns may be selected, the last indices of a row are -1, and their
        scores are the worst: -inf or the least int32; for ``mode="smallest"`` inf or the greatest int32.

    Raises
    ------
    DmlError
        If an argument is not valid; then nothing is written.
    TypeError
        If an argument has the wrong Python type.

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
    >>> dmlcpu.matmul_top_k(np.array([2, 1], np.int8), vectors.T, 2, exclude=[1]).indices
    array([3, 0])
    """
    key, arrays = request(a, b, k, a_scale, a_zero_point, b_scale, b_zero_point, bias, mode, nan, mask, exclude, out)
    prepared = plan_for_now(prepare, key)
    if out is None:
        values, indices = prepared.new
        result = tuple.__new__(MatmulTopK, (values(), indices()))  # `MatmulTopK` itself is a Python call
    else:
        result = allocate(prepared, arrays, out)
    prepared.run(*arrays, *result)
    return result


def request(*given: Any) -> Request:
    """Return the key of a prepared call, without the budget, and the arrays that it reads; given: all arguments."""
    a, b, k, a_scale, a_zero_point, b_scale, b_zero_point, bias, mode, nan, mask, exclude, out = given
    a, a_form = formed(NAME, "a", a)
    b, b_form = (b, form_of_packed(b)) if type(b) is PackedMatrix else formed(NAME, "b", b)
    if type(k) is not int:  # in a key, 1.0 and True would be 1
        k = as_integer(NAME, "k", k)
    is_scaled = not (a_scale is None and b_scale is None)
    # Missing scales are also numbers: for other types the kernel would be compiled again.
    a_scale, b_scale = 1.0 if a_scale is None else a_scale, 1.0 if b_scale is None else b_scale
    parameters = (a_scale, a_zero_point, b_scale, b_zero_point, ABSENT, None)
    flat, shapes, _ = parameters_of(NAME, _no_type, a.dtype, b.dtype, (None, out), parameters)
    bias_shape = None
    if bias is not None:
        bias = as_floats(NAME, "bias", bias) if is_scaled else as_integers(NAME, "bias", bias, _INT, "int32")
        bias, bias_shape = np.ascontiguousarray(bias).reshape(-1), bias.shape
        bias = bias if bias.flags.writeable else bias.copy()  # kernels are compiled for arrays that can be written to
        if out is not None:
            (bias,) = apart(out, (bias,))
    bits = None if mask is None and exclude is None else _bits(a.shape, b.shape, mask, exclude)
    key = (a_form, b_form, shapes[:4], bias_shape, (k, is_scaled, mode, nan), None if bits is None else bits.shape)
    return key, (a, b, flat[:4], bias, bits, None, None)


def _bits(a: Shape, b: Shape, mask: Any, exclude: Any) -> Array | None:
    """Return bits that say which columns may be selected, for all rows or for each; a, b: shapes."""
    for name, shape in (("a", a), ("b", b)):
        if len(shape) > 2:
            raise BindingError(NAME, f"{name}.ndim", str(len(shape)), "at most 2 with mask or exclude")
    if not a or len(b) < 2 or b[-1] > MOST_COLUMNS:
        return None  # `check` refuses these shapes
    rows = a[0] if len(a) == 2 else 1
    return allowed_of(NAME, rows, b[-1], mask=mask, exclude=exclude).bits(0, rows)


def _no_type(*_: Any) -> np.dtype[Any]:
    """Return the type of the result, for `parameters_of`; the result has no zero point."""
    return _FLOAT


@functools.lru_cache(maxsize=1024)
def prepare(
    a: Any,
    b: Any,
    parameters: tuple[Shape | None, ...],
    bias: Shape | None,
    options: tuple[Any, ...],
    bits: Shape | None,
    budget: Budget,
) -> Prepared:
    """Return the prepared call.

    a, b: forms, b perhaps that of a packed matrix; parameters, bias: shapes; options: k, whether scores are scaled,
    mode, nan; bits: the shape of the bits of allowed columns.
    """
    return plan(check(a, b, parameters, bias, options, bits), budget)


def check(
    a: Any,
    b: Any,
    parameters: tuple[Shape | None, ...],
    bias: Shape | None,
    options: tuple[Any, ...],
    bits: Shape | None,
) -> Call:
    """Return the checked selection, or refuse it; the arguments are `prepare`'s."""
    k, is_scaled, mode, nan = options
    a, (b, layout, is_exact) = Form(*a), rhs_form(b)
    check_matrix(NAME, "a", a)
    check_matrix(NAME, "b", b, at_least=2)
    shapes = shapes_of(NAME, a.shape, b.shape)
    n = shapes.matrix[-1]
    if n > MOST_COLUMNS:
        raise DmlError(NAME, "b.shape", str(b.shape), f"at most {MOST_COLUMNS} columns")
    if not 0 <= k <= n:
        raise DmlError(NAME, "k", str(k), f"0 to {n} (the columns of b)")
    check_choice(NAME, "mode", mode, _MODES)
    check_choice(NAME, "nan", nan, _NANS)
    dtype, shape = _FLOAT if is_scaled else _INT, (*shapes.shape[:-1], k)
    return Call(
        Form(shapes.left, a.dtype, matrix_strides(a.strides, len(a.shape) == 1, False)),
        b,
        layout if layout != UNPACKED else rhs_layout(b),
        is_exact,
        spread_all(NAME, parameters, shapes),
        None if bias is None else spread(NAME, "bias", bias, shapes.columns, False),
        Order(k, is_scaled, mode == "largest", nan == "last"),
        shapes.matrix[:-1],
        (Tensor(shape, dtype), Tensor(shape, INDEX)),
        bits,
    )


def allocate(prepared: Prepared, arrays: tuple[Any, ...], out: Any) -> MatmulTopK:
    """Return the output arrays: new ones, or those of `out` if they fit."""
    if out is None:
        return MatmulTopK._make([make() for make in prepared.new])
    check_tuple(NAME, out, 2, "a tuple (values, indices) of two arrays")
    values, indices = (check_output(NAME, f"out[{i}]", out[i], *each) for i, each in enumerate(prepared.results))
    a, b = arrays[:2]
    others = {"a": a} if isinstance(b, PackedMatrix) else {"a": a, "b": b}
    check_apart(NAME, "out[0]", values, {**others, "out[1]": indices})
    check_apart(NAME, "out[1]", indices, others)
    return MatmulTopK(values, indices)
