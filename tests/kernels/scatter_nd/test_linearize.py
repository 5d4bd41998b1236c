"""Index tuples as offsets, against NumPy's own."""

import numpy as np
import pytest
from numba import njit
from samples import INDEX_TYPES

from dmlcpu.indexing.reductions import INDEX_WORD
from dmlcpu.kernels.scatter_nd import linearize as compiled
from dmlcpu.kernels.scatter_nd.work import CLIP, DROP, RAISE, SKIPPED, VALID, WORK
from dmlcpu.operators.scatter_nd.function import prepare, request
from dmlcpu.runtime.memory import words
from dmlcpu.runtime.records import record_at
from dmlcpu.runtime.threads import Budget

SHAPE = (7, 9, 5)
LAYOUTS = {
    "packed": lambda indices: indices,
    "apart": lambda indices: np.repeat(indices, 2, axis=0)[::2],
    "coordinates apart": lambda indices: np.repeat(indices, 2, axis=1)[:, ::2],
    "backwards": lambda indices: indices[::-1].copy()[::-1],
    "in two dimensions": lambda indices: np.repeat(indices.reshape(4, -1, indices.shape[1]), 2, axis=1)[:, ::2],
    "not evenly spaced": lambda indices: np.pad(indices.reshape(4, -1, indices.shape[1]), ((0, 0), (0, 3), (0, 0)))[
        :, :-3
    ],
}


@njit
def linearize(indices, works, first, last, mode, offsets):
    return compiled.linearize(indices, record_at(works, 0, WORK).tuples, first, last, mode, offsets)


def linearized(indices, mode, first=0):
    """Return the report on the tuples from `first` on, and their offsets."""
    updates = np.zeros((*indices.shape[:-1], *SHAPE[indices.shape[-1] :]))
    key, _ = request(np.zeros(SHAPE), indices, updates, "none", "raise")
    chosen = prepare(*key, Budget(1))
    count = indices.size // indices.shape[-1]
    offsets = np.full(count - first, -9)
    return linearize(words(indices, INDEX_WORD), chosen.work, first, count, mode, offsets), offsets


@pytest.mark.parametrize("index_type", INDEX_TYPES, ids=str)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("coordinates", [1, 2, 3])
def test_as_ravel_multi_index(index_type, layout, coordinates):
    rng = np.random.default_rng(coordinates)
    sizes = SHAPE[:coordinates]
    tuples = rng.integers(0, sizes, (44, coordinates))  # five lines, and four more
    expected = np.ravel_multi_index(tuples.T, sizes) * np.prod(SHAPE[coordinates:], dtype=int)
    from_end = rng.integers(0, 2, tuples.shape) if index_type.kind == "i" else 0
    indices = LAYOUTS[layout]((tuples - from_end * np.array(sizes)).astype(index_type))
    for first in (0, 3, 17):
        report, offsets = linearized(indices, RAISE, first)
        assert report == VALID
        assert offsets.tolist() == expected[first:].tolist()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("bad", [-8, 7, 2**40])
def test_an_index_out_of_range(layout, bad):
    tuples = np.random.default_rng(1).integers(0, SHAPE[:2], (44, 2))
    tuples[[21, 30], 0] = bad
    indices = LAYOUTS[layout](tuples)
    report, _ = linearized(indices, RAISE)
    assert report == 21 * 2
    for mode in (DROP, CLIP):
        report, offsets = linearized(indices, mode)
        clipped = np.clip(tuples, 0, (6, 8))
        expected = np.ravel_multi_index(clipped.T, SHAPE[:2]) * SHAPE[2]
        if mode == DROP:
            expected[[21, 30]] = SKIPPED
        assert report == VALID
        assert offsets.tolist() == expected.tolist()
