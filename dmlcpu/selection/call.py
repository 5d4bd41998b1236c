"""What is selected: the facts that decide how, and the arrays that a prepared selection reads."""

import math
from typing import Any, NamedTuple

import numpy as np

from dmlcpu.common.arguments import Array
from dmlcpu.common.forms import Form, Shape, form_of
from dmlcpu.common.regions import Tensor
from dmlcpu.kernels.gemm.table import COLUMN_MAJOR, UNPACKED
from dmlcpu.products.arguments import BYTE, flat_of
from dmlcpu.products.packing import PackedMatrix
from dmlcpu.runtime.memory import flat

Rhs = Array | PackedMatrix

INDEX = np.dtype(np.int64)
ONE, NO_ZERO = np.ones(1, np.float32), np.zeros(1, BYTE)  # absent scales and zero points: arrays of the same types


class Order(NamedTuple):
    """Which scores come first, and what they are."""

    k: int
    is_scaled: bool  # float32, else int32
    is_largest: bool = True
    nan_last: bool = False
    shift: int = 0  # of sums to the left, before the bias is added


class Operands(NamedTuple):
    """What is multiplied and added, all of it checked. Matrices have the dimensions of the result's batch or fewer."""

    a: Array
    b: Rhs
    a_scale: Array | None  # float32, as (..., M, 1); scales and zero points as those of a product
    a_zero_point: Array | None
    b_scale: Array | None
    b_zero_point: Array | None
    bias: Array | None = None  # float32 if scores are scaled, else int32: (..., 1, N)
    mask: Array | None = None  # bits in bytes, the lowest first (1 or M, ceil(N / 8)): what each row may select
    row_bias: Array | None = None  # float32 (M, 1): added to a row's scaled sums before the columns' scale
    least: Array | None = None  # float32 (M, 1): lower scores are not selected
    is_exact: bool = False  # no pair of products saturates, as no byte of a exceeds 127


class Call(NamedTuple):
    """What is selected, all of it checked."""

    a: Form  # matrices, as b is
    b: Form  # of a packed matrix all strides are 0
    layout: str  # of b: as packed, UNPACKED or COLUMN_MAJOR
    is_exact: bool  # it is known that no pair of products saturates
    parameters: tuple[Shape | None, ...]  # of a_scale, a_zero_point, b_scale, b_zero_point, as matrices
    bias: Shape | None
    order: Order
    rows: Shape  # of the result without k
    results: tuple[Tensor, ...]  # with the dimensions that 1-D operands drop left out
    mask: Shape | None = None
    row_bias: Shape | None = None
    has_least: bool = False


def call_of(operands: Operands, order: Order, rows: Shape) -> Call:
    """Return what is selected of operands. rows: the shape of the result without k."""
    a, b, *parameters = operands[:6]
    bias, mask, row_bias = [None if each is None else each.shape for each in operands[6:9]]
    b_form = Form(b.shape, b.dtype, (0,) * b.ndim) if isinstance(b, PackedMatrix) else Form(*form_of(b))
    layout, is_exact = (b.layout, b.saturating == 0) if isinstance(b, PackedMatrix) else (rhs_layout(b_form), False)
    is_exact |= operands.is_exact
    shapes = tuple([None if each is None else each.shape for each in parameters])
    given = order, rows, (), mask, row_bias, operands.least is not None
    return Call(Form(*form_of(a)), b_form, layout, is_exact, shapes, bias, *given)


def rhs_layout(b: Form) -> str:
    """Return the layout of a matrix that is not packed: COLUMN_MAJOR if its columns are contiguous, and apart."""
    return COLUMN_MAJOR if b.steps[-2] == 1 and b.steps[-1] >= b.shape[-2] else UNPACKED


def arrays_of(operands: Operands) -> tuple[Any, ...]:
    """Return what a prepared selection reads: a, b, the flat parameters, the bias, the mask, row_bias and least."""
    a, b, *parameters = operands[:6]
    bias, mask, row_bias, least = operands[6:10]
    # Missing scales are also numbers: for other types the kernel would be compiled again.
    numbers = [
        (ONE if place % 2 == 0 else NO_ZERO) if each is None else flat_of(each) for place, each in enumerate(parameters)
    ]
    others = [None if each is None else flat(each) for each in (bias, row_bias, least)]
    return a, b, numbers, others[0], mask, *others[1:]


def fill_value(order: Order) -> float | int:
    """Return the score of an index of -1."""
    if order.is_scaled:
        return -math.inf if order.is_largest else math.inf
    limits = np.iinfo(np.int32)
    return int(limits.min if order.is_largest else limits.max)
