"""All ways that scatter_nd writes, over the shapes where blocks end, all types, layouts and modes."""

import itertools

import numpy as np
import pytest
from samples import (
    INDEX_TYPES,
    KERNEL_LAYOUTS,
    NUMERIC_TYPES,
    OTHER_TYPES,
    THREADS,
    assert_same_bits,
    few_values,
    random_bits,
)

import dmlcpu
from dmlcpu import reference
from dmlcpu.kernels import registry
from dmlcpu.runtime.threads import use_budget

APPLYING = [row.name for row in registry.available("scatter_nd", "apply")]
SCATTERS = (
    # shape of x, T, outer shape of indices
    ((1,), 1, (1,)),
    ((9,), 1, (5,)),
    ((9,), 0, (3,)),
    ((33,), 1, (2, 40)),
    ((40,), 1, (300,)),  # more than a block of updates
    ((7, 9), 2, (3, 100)),
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
def test_every_kernel(dtype, reduction):
    rng = np.random.default_rng([*f"{dtype} {reduction}".encode()])  # other numbers of threads each
    index_types, in_places = itertools.cycle(INDEX_TYPES), itertools.cycle((True, False, True, False, False))
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
        is_single = coordinates == len(shape) and evenly
        is_half = reduction != "none" and dtype.name in ("float16", "bfloat16")  # these are not selected
        kernels = APPLYING if is_single and not is_half else ["apply"]
        kernels = [*kernels, "apply_buckets"] if updates.size else kernels
        for kernel in kernels:
            threads, in_place = int(rng.choice(THREADS)), next(in_places)
            given = x.copy() if in_place else x
            found = given if in_place else np.empty_like(expected)
            with use_budget(threads, grain=1, kernel=kernel):
                dmlcpu.scatter_nd(given, indices, updates, reduction=reduction, mode=mode, out=found)
            case = f"{kernel}: {shape=}, {coordinates=}, {outer=}, {mode=}, {index_type=!s}, {layouts=}, {threads=}"
            assert_same_bits((np.ascontiguousarray(found),), (expected,), f"{case}, {in_place=}")
