"""Every kernel of top_k that this machine can run, over the shapes where groups, vectors and tiles end."""

import functools
import itertools

import numpy as np
import pytest
from samples import DISTRIBUTIONS, INDEX_TYPES, KERNEL_LAYOUTS, THREADS, TOP_K_TYPES, assert_same_bits

import dmlcpu
from dmlcpu import reference
from dmlcpu.kernels import registry
from dmlcpu.kernels.top_k.work import Problem
from dmlcpu.runtime.threads import use_budget

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


def ks(n):
    return sorted({k for k in (1, 2, 9, 33, 97, n // 2, n) if 1 <= k <= n})


@functools.lru_cache(maxsize=1)  # the kernels of a type follow one another
def top_k_cases(dtype):
    """Return a name, the arguments of a call and the expected result of each case."""
    rng = np.random.default_rng(7)
    layouts = itertools.cycle(KERNEL_LAYOUTS.items())
    directions = itertools.cycle([True, False])
    index_types = itertools.cycle(INDEX_TYPES)
    ranks = itertools.cycle(["greatest", "last", "greatest"])  # of NaN, with either direction
    cases, halves = [], itertools.count(TOP_K_TYPES.index(dtype))
    for (shape, axis), (distribution, make) in itertools.product(SHAPES, DISTRIBUTIONS.items()):
        layout, lay_out = next(layouts)
        x = lay_out(make(rng, shape, dtype))
        for k in ks(shape[axis])[next(halves) % 2 :: 2]:  # the next distribution, and the next type, has the others
            options = {"axis": axis, "largest": next(directions), "nan": next(ranks), "index_dtype": next(index_types)}
            expected = reference.top_k(x, k, **options)
            cases.append((f"shape {shape}, k {k}, {options}, {distribution}, {layout}", (x, k, options), expected))
    return cases


def problem_of(x, k, axis):
    """Return the facts that decide the kernel."""
    n, others = x.shape[axis], [d for d in range(x.ndim) if d != axis and x.shape[d] > 1]
    columns = x.shape[others[-1]] if others and x.strides[others[-1]] == x.itemsize else 1
    return Problem(rows=x.size // n, n=n, k=k, step=x.strides[axis] // x.itemsize, columns=columns)


@pytest.mark.parametrize("kernel", [entry.name for entry in registry.available("top_k", "select")])
@pytest.mark.parametrize("dtype", TOP_K_TYPES, ids=str)
def test_top_k(dtype, kernel):
    supports, runs = registry.find("top_k", "select", kernel).supports, 0
    rng = np.random.default_rng([*f"{kernel} {dtype}".encode()])  # other numbers of threads each
    for name, call, expected in top_k_cases(dtype):
        threads = int(rng.choice(THREADS))
        found = np.empty_like(expected.values), np.empty_like(expected.indices)
        with use_budget(threads, grain=1, kernel=kernel):
            try:
                x, k, options = call
                dmlcpu.top_k(x, k, **options, out=found)
            except LookupError:  # this kernel is not for such sequences
                continue
        assert_same_bits(found, expected, f"{kernel}, {dtype}, {name}, {threads} threads")
        runs += 1
    problems = [problem_of(x, k, options["axis"]) for _, (x, k, options), _ in top_k_cases(dtype)]
    able = [problem for problem in problems if supports(problem)]
    assert runs == len(able) > 5


@pytest.mark.parametrize("dtype", ["uint8", "int16", "float32", "float64"])
@pytest.mark.parametrize("n", [16_384, 16_385, 270_001])
def test_long_sequences(n, dtype):
    rng = np.random.default_rng(10)
    for distribution, make in DISTRIBUTIONS.items():
        x = make(rng, (n,), np.dtype(dtype))
        expected = reference.top_k(x, n // 2)
        for k, threads in itertools.product((1, 100, 3000, n // 2), (1, 5)):
            with use_budget(threads, grain=1):
                case = f"{distribution}, {k=}, {threads=}"
                assert_same_bits(dmlcpu.top_k(x, k), [each[:k] for each in expected], case)


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
        for largest in (True, False):
            expected = reference.top_k(x, 200, axis=0, largest=largest)
            for k in (1, 5, 64, 200):
                found = dmlcpu.top_k(x, k, axis=0, largest=largest)
                assert_same_bits(found, [each[:k] for each in expected], f"{name}, {k=}, {largest=}")


def test_a_bound_call_merges_the_winners_of_a_sequence_in_one_part():
    x = np.arange(500, dtype=np.float32)[None]
    out = np.full((1, 31), -1, np.float32), np.full((1, 31), -1)
    with use_budget(2, grain=1, kernel="split"):
        dmlcpu.bind(dmlcpu.top_k, x, 31, out=out)()
    assert_same_bits(out, reference.top_k(x, 31))
