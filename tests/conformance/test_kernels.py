"""Every kernel of the registry that this machine can run, over the shapes where blocks, digits and tiles end."""

import functools
import itertools

import numpy as np
import pytest
from samples import (
    DISTRIBUTIONS,
    INDEX_TYPES,
    LAYOUTS,
    NUMERIC_TYPES,
    OTHER_TYPES,
    THREADS,
    TOP_K_TYPES,
    assert_same_bits,
    few_values,
    misaligned,
    quantized,
    random_bits,
    swapped,
)

import dmlcpu
from dmlcpu import reference
from dmlcpu.kernels import registry
from dmlcpu.kernels.gemm import skinny
from dmlcpu.kernels.top_k.work import Problem
from dmlcpu.operators.quantized_matmul import execute as execute_quantized_matmul
from dmlcpu.operators.scatter_nd import execute as execute_scatter_nd
from dmlcpu.operators.top_k import execute as execute_top_k
from dmlcpu.runtime.threads import limits

# Sequence lengths on both sides of where a group, a vector, a sort by rank, the lanes' positions and a tile end.
LENGTHS = (1, 2, 7, 15, 16, 17, 31, 33, 64, 96, 97, 255, 256, 257, 1023, 1025, 2100)
SHAPES = (
    *[((n,), 0) for n in LENGTHS],
    *[((3, n), 1) for n in (1, 9, 33, 257)],
    *[((n, 3), 0) for n in (1, 9, 33, 257)],
    *[((rows, 5), 1) for rows in (31, 32, 33, 65)],
    ((40, 129), 0),
    ((2, 35, 130), 1),
    ((2, 40, 3), 1),
    ((2, 3, 4, 5), 2),
    ((1, 2, 3, 1, 35), 4),
    ((2, 1, 2, 9, 1, 2), 3),
    ((2, 2, 2, 2, 2, 2, 3), 6),
    ((2, 1, 2, 1, 3, 2, 2, 2), 0),
)
# Layouts that operators turn into others before a kernel sees them are not the kernels' business.
KERNEL_LAYOUTS = {name: make for name, make in LAYOUTS.items() if make not in (misaligned, swapped)}


def ks(n):
    return sorted({k for k in (1, 2, 9, 33, 97, n // 2, n) if 1 <= k <= n})


@functools.lru_cache(maxsize=1)  # the kernels of a type follow one another
def top_k_cases(dtype):
    """Return a name, the arguments of a call and the expected result of each case."""
    rng = np.random.default_rng(7)
    layouts = itertools.cycle(KERNEL_LAYOUTS.items())
    directions = itertools.cycle([True, False])
    index_types = itertools.cycle(INDEX_TYPES)
    cases = []
    for (shape, axis), (distribution, make) in itertools.product(SHAPES, DISTRIBUTIONS.items()):
        layout, lay_out = next(layouts)
        x = lay_out(make(rng, shape, dtype))
        for k in ks(shape[axis]):
            largest, index_type = next(directions), next(index_types)
            expected = reference.top_k(x, k, axis=axis, largest=largest, index_dtype=index_type)
            name = f"shape {shape}, axis {axis}, k {k}, largest {largest}, {distribution}, {layout}, {index_type}"
            cases.append((name, (x, k, axis, largest), expected))
    return cases


def problem_of(x, k, axis):
    """Return what the choice of a kernel goes by."""
    n, others = x.shape[axis], [d for d in range(x.ndim) if d != axis and x.shape[d] > 1]
    columns = x.shape[others[-1]] if others and x.strides[others[-1]] == x.itemsize else 1
    return Problem(rows=x.size // n, n=n, k=k, step=x.strides[axis] // x.itemsize, columns=columns)


@pytest.mark.parametrize("kernel", [entry.name for entry in registry.available("top_k", "select")])
@pytest.mark.parametrize("dtype", TOP_K_TYPES, ids=str)
def test_top_k(dtype, kernel):
    supports, runs = registry.find("top_k", "select", kernel).supports, 0
    for (name, call, expected), threads in itertools.product(top_k_cases(dtype), THREADS):
        found = np.empty_like(expected.values), np.empty_like(expected.indices)
        with limits(threads, grain=1):
            try:
                execute_top_k(*call, *found, kernel=kernel)
            except LookupError:  # this kernel is not for such sequences
                continue
        assert_same_bits(found, expected, f"{kernel}, {dtype}, {name}, {threads} threads")
        runs += 1
    able = [name for name, (x, k, axis, _), _ in top_k_cases(dtype) if not supports or supports(problem_of(x, k, axis))]
    assert runs == len(THREADS) * len(able) > 30


@pytest.mark.parametrize("dtype", ["uint8", "int16", "float32", "float64"])
@pytest.mark.parametrize("n", [16_384, 16_385, 270_001])
def test_long_sequences(n, dtype):
    rng = np.random.default_rng(10)
    for distribution, make in DISTRIBUTIONS.items():
        x = make(rng, (n,), np.dtype(dtype))
        for k, threads in itertools.product((1, 100, 3000, n // 2), (1, 5)):
            with limits(threads, grain=1):
                case = f"{distribution}, {k=}, {threads=}"
                assert_same_bits(dmlcpu.top_k(x, k), reference.top_k(x, k), case)


@pytest.mark.parametrize("dtype", ["int8", "float32"])
@pytest.mark.parametrize("shape", [(5000,), (4000, 40)])
def test_adversaries_of_groups(shape, dtype):
    """The winners all in one group or tile, at either end, in every lane; and ties that only positions decide."""
    n = shape[0]
    ramp = np.arange(n) % 120
    patterns = {
        "ascending": np.arange(n) * 120 // n,
        "descending": np.arange(n)[::-1] * 120 // n,
        "equal": np.zeros(n),
        "two values": np.arange(n) >= n - 3,
        "organ pipe": np.minimum(np.arange(n), np.arange(n)[::-1]) * 120 // n,
        "one lane of each tile": np.where(np.arange(n) % 64 == 5, ramp, 0),
        "one run": np.where((np.arange(n) >= 900) & (np.arange(n) < 1100), 100, 0),
        "the last": np.arange(n) == n - 1,
    }
    for name, pattern in patterns.items():
        x = np.broadcast_to(pattern.reshape(n, *[1] * (len(shape) - 1)), shape).astype(dtype)
        for k, largest in itertools.product((1, 5, 64, 200), (True, False)):
            found = dmlcpu.top_k(x, k, axis=0, largest=largest)
            assert_same_bits(found, reference.top_k(x, k, axis=0, largest=largest), f"{name}, {k=}, {largest=}")


SCATTERS = (
    # shape of x, T, outer shape of indices
    ((1,), 1, (1,)),
    ((9,), 1, (5,)),
    ((9,), 0, (3,)),
    ((33,), 1, (2, 40)),
    ((40,), 1, (700,)),  # more than a block of updates
    ((7, 9), 2, (3, 200)),
    ((5, 4), 1, (7,)),
    ((5, 4), 2, (30,)),
    ((3, 4, 5), 2, (2, 3)),
    ((2, 3, 2, 2), 2, ()),
    ((2, 1, 3, 2, 2), 3, (9,)),
    ((1, 2, 2, 1, 2, 2), 4, (3, 2)),
    ((2, 2, 1, 2, 2, 1, 2), 5, (6,)),
    ((2, 1, 2, 2, 1, 2, 1, 2), 8, (1, 12)),
)


@pytest.mark.parametrize(
    ("dtype", "reduction"),
    [
        *[(dtype, "none") for dtype in (*NUMERIC_TYPES, *OTHER_TYPES)],
        *[
            (dtype, reduction)
            for dtype in NUMERIC_TYPES
            for reduction in ("add", "mul", "min", "max")
            if dtype.kind != "c" or reduction in ("add", "mul")
        ],
    ],
    ids=str,
)
def test_scatter_nd(dtype, reduction):
    rng = np.random.default_rng(8)
    index_types = itertools.cycle(INDEX_TYPES)
    for (shape, coordinates, outer), mode in itertools.product(SCATTERS, ("raise", "drop", "clip")):
        make = random_bits if dtype in OTHER_TYPES or mode == "drop" else few_values
        layouts = [str(name) for name in rng.choice(list(KERNEL_LAYOUTS), 3)]
        lay_x, lay_indices, lay_updates = [KERNEL_LAYOUTS[name] for name in layouts]
        x = lay_x(make(rng, shape, dtype))
        updates = make(rng, outer + shape[coordinates:], dtype)
        updates = lay_updates(updates) if updates.ndim else updates
        index_type = next(index_types)
        low = np.zeros(coordinates, int) if index_type.kind == "u" else -np.array(shape[:coordinates])
        beyond = 0 if mode == "raise" else 1
        indices = rng.integers(low - beyond * (low < 0), np.array(shape[:coordinates]) + beyond, (*outer, coordinates))
        indices = indices.astype(index_type)
        indices = lay_indices(indices) if outer else indices  # one tuple, repeated along itself, is another tuple
        expected = reference.scatter_nd(x, indices, updates, reduction=reduction, mode=mode)
        evenly = updates.ndim == 1 and dtype.kind != "c" and dtype.itemsize in (1, 2, 4, 8)
        kernels = ("apply", "apply_buckets") if coordinates == len(shape) and evenly else ("apply",)
        for threads, kernel in itertools.product(THREADS, kernels):
            call = functools.partial(execute_scatter_nd, reduction=reduction, mode=mode, kernel=kernel)
            with limits(threads, grain=1):
                found = np.empty_like(expected)
                call(x, indices, updates, found)
                in_place = x.copy()
                call(in_place, indices, updates, in_place)
            case = f"{kernel}: {shape=}, {coordinates=}, {outer=}, {mode=}, {index_type=!s}, {layouts=}, {threads=}"
            assert_same_bits((found,), (expected,), case)
            assert_same_bits((np.ascontiguousarray(in_place),), (expected,), f"{case}, in place")


PRODUCTS = (
    # batch of a, batch of b, M, K, N
    ((), (), 1, 1, 1),
    ((), (), 2, 31, 4),
    ((), (), 3, 32, 5),
    ((), (), 31, 33, 63),
    ((), (), 32, 64, 64),
    ((), (), 33, 65, 65),
    ((), (), 1, 300, 130),
    ((), (), 130, 40, 1),
    ((2,), (2,), 5, 7, 9),
    ((2, 1), (3,), 4, 33, 3),
    ((1, 2, 1), (3, 1, 2), 3, 9, 2),
    ((), (), 2, 70_001, 5),  # longer than int32 sums may be
    ((), (), 1, 1, 64),
    ((2,), (2,), 16, 15, 127),
    ((2, 1), (2,), 3, 17, 65),
    ((), (), 5, 1_041, 250),
    ((), (), 2, 33_026, 70),
)


@pytest.mark.parametrize("signs", list(itertools.product(["int8", "uint8"], repeat=3)), ids="-".join)
@pytest.mark.parametrize("kernel", [entry.name for entry in registry.available("quantized_matmul", "dot")])
def test_quantized_matmul(kernel, signs):
    rng = np.random.default_rng(9)
    layouts, runs, is_skinny = itertools.cycle(KERNEL_LAYOUTS.values()), 0, kernel.startswith("skinny")
    for (a_batch, b_batch, rows, depth, columns), extreme in itertools.product(PRODUCTS, (False, True)):
        types = [np.dtype(name) for name in signs]
        batch = np.broadcast_shapes(a_batch, b_batch)
        a = quantized(rng, (*a_batch, rows, depth), types[0])
        b = quantized(rng, (*b_batch, depth, columns + 5), types[1])[..., 2:-3]  # rows are read beyond nowhere
        if extreme:
            a[...], b[...] = np.iinfo(types[0]).min, np.iinfo(types[1]).max
        arguments = (
            next(layouts)(a),
            rng.uniform(0.001, 2, (rows, 1)).astype(np.float32),
            quantized(rng, (1, 1), types[0]),
            b if is_skinny else next(layouts)(b),
            rng.uniform(0.001, 2, (1, columns)).astype(np.float32),
            quantized(rng, (1, columns), types[1]),
            (rng.uniform(0.5, 2, (rows, 1)) * (2000 * depth if extreme else 100 * depth**0.5)).astype(np.float32),
            quantized(rng, (rows, 1), types[2]),
        )
        expected = reference.quantized_matmul(*arguments)
        for threads in THREADS:
            found = np.empty((*batch, rows, columns), types[2])
            with limits(threads, grain=1):
                try:
                    execute_quantized_matmul(*arguments, found, kernel=kernel)
                except LookupError:  # this kernel is not for such products
                    continue
            shapes = f"batches {a_batch} and {b_batch}, {rows=}, {depth=}, {columns=}"
            assert_same_bits((found,), (expected,), f"{shapes}, {extreme=}, {threads=}")
            runs += 1
    able = [product for product in PRODUCTS if not is_skinny or skinny.supports(*[product[i] for i in (2, 4, 3)], 1)]
    assert runs == len(THREADS) * 2 * len(able) > 20
