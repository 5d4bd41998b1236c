"""The microkernels that this machine can run, and the check of those for tiles, against NumPy."""

import numpy as np

from dmlcpu.kernels import registry
from dmlcpu.kernels.gemm.microkernels.microkernel import KC, MR, NR, ROW_STEP, Microkernel
from dmlcpu.runtime.intrinsics import Strided
from dmlcpu.runtime.memory import aligned_empty

LHS, RHS = 16, NR  # where the operands begin in their arrays


def microkernels(*, is_skinny: bool) -> list[Microkernel]:
    """Return the microkernels of the products that can run here."""
    rows = [row for row in registry.available("quantized_matmul", "dot") if row.mr <= MR or row.is_skinny]
    return [registry.load(row.parts[0]) for row in rows if row.is_skinny == is_skinny]


def check_products(dot, rows, groups, lowest=-128, types=(np.uint8, np.int8)):
    """Compare a dot of `make_dot` with NumPy; accumulators wrap, and data around the operands must not matter.

    lowest: of b's elements; types: of the elements of both words.
    """
    rng = np.random.default_rng(rows)
    depth = 4 // np.dtype(types[0]).itemsize  # elements of a word
    a = rng.integers(0, 256, (rows, depth * groups), types[0])
    b = rng.integers(lowest, -lowest, (depth * groups, NR), types[1])
    if groups == KC:
        a[...], b[...] = 255, lowest
    lhs = aligned_empty(LHS + rows * ROW_STEP, np.uint32)
    lhs[...] = 0x01010101
    for row in range(rows):
        lhs[LHS + row * ROW_STEP :][:groups] = a[row].view(np.uint32)
    rhs = aligned_empty(RHS + groups * NR, np.uint32)
    rhs[RHS:] = b.reshape(groups, depth, NR).swapaxes(1, 2).copy().view(np.uint32).reshape(-1)
    product = a.astype(np.int64) @ b.astype(np.int64)
    for step, is_same, two_dimensional in (NR, True, False), (NR, False, True), (0, False, False), (0, False, True):
        acc = aligned_empty((rows + 1) * NR, np.int32)
        acc[...] = rng.integers(2**31 - 9, 2**31, acc.size)
        first = 0 if is_same else NR
        c_in = acc if is_same else aligned_empty(first + rows * NR, np.int32)
        c_in[...] = rng.integers(2**31 - 9, 2**31, c_in.size)
        starts = c_in[first:][: rows * NR if step else NR].reshape(-1, NR).astype(np.int64)
        behind = acc[rows * NR :].copy()
        shape = (-1, NR) if two_dimensional and rows in (4, 16) else (-1,)  # two heights: each shape is compiled
        before = Strided(c_in.reshape(shape), first, step, rows)
        dot(lhs, LHS, rhs, RHS, groups, before, acc.reshape(shape))
        case = f"{rows} rows, {groups} groups, step {step}, {'one array' if is_same else 'two arrays'}, shape {shape}"
        found = acc[: rows * NR].reshape(rows, NR)
        np.testing.assert_array_equal(found, (product + starts).astype(np.int32), case)
        np.testing.assert_array_equal(acc[rows * NR :], behind, case)
