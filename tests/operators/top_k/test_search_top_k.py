"""Searching sequences side by side that come a block at a time, and the kernel that filters them."""

import itertools

import numpy as np
import pytest
from samples import DISTRIBUTIONS, KERNEL_LAYOUTS, THREADS, TOP_K_TYPES, assert_same_bits

from dmlcpu import reference
from dmlcpu.common.forms import Form, form_of
from dmlcpu.kernels import registry
from dmlcpu.kernels.top_k.strided_tournament import COLUMNS
from dmlcpu.operators.top_k import search as top_k_search
from dmlcpu.operators.top_k.call import INT64, Call
from dmlcpu.operators.top_k.plan import plan
from dmlcpu.operators.top_k.search import Search
from dmlcpu.runtime.memory import words
from dmlcpu.runtime.threads import Budget, use_budget

# Columns on both sides of where a vector and a block of columns end.
BLOCKS = ((1, 1), (5, 3), (15, 16), (16, 17), (17, 65), (40, 127), (33, 128), (2, 129), (48, 300))


def block_cases(dtype):
    """Return a name, a block and options that say which elements are better."""
    rng = np.random.default_rng(11)
    layouts, directions = itertools.cycle(KERNEL_LAYOUTS.items()), itertools.cycle([True, False])
    ranks = itertools.cycle(["greatest", "last", "greatest"])
    for shape, (distribution, make) in itertools.product(BLOCKS, DISTRIBUTIONS.items()):
        layout, lay_out = next(layouts)
        options = {"largest": next(directions), "nan": next(ranks)}
        yield f"{shape}, {distribution}, {layout}, {options}", lay_out(make(rng, shape, dtype)), options


def call_of(columns, k, dtype, *, largest, nan="greatest"):
    """Return what a search looks for."""
    return Call(Form((0, columns), np.dtype(dtype)), k, 0, INT64, largest, nan_last=nan == "last")


def filtered(block, bounds, shares, most, parts, largest, nan):
    """Return the counts, values and positions that the kernel gives for a block whose first row is the 1000th."""
    columns = block.shape[1]
    call = call_of(columns, 1, block.dtype, largest=largest, nan=nan)._replace(x=Form(*form_of(block)))
    chosen = plan(call, (None, None), Budget(1))
    counts, positions = np.zeros(columns, np.int64), np.full((columns, most), -1)
    values = np.zeros((columns, most), block.dtype)
    found = (counts, words(values.reshape(-1), chosen.word), positions.reshape(-1))
    scratch = np.empty(parts * 2 * COLUMNS, chosen.word)
    kernel = registry.find("top_k", "filter").kernel
    x, bounds, shares = (words(each, chosen.word) for each in (block, bounds, shares.reshape(-1)))
    kernel(parts, x, bounds, shares, 1000, *found, chosen.work, scratch)
    return counts, values, positions


@pytest.mark.parametrize("dtype", TOP_K_TYPES, ids=str)
def test_the_kernel_finds_what_the_reference_ranks_before_the_bounds(dtype):
    rng = np.random.default_rng(14)
    for name, block, options in block_cases(dtype):
        rows = len(block)
        bounds = np.ascontiguousarray(block[rows // 2])
        shares = np.ascontiguousarray(block[rng.integers(0, rows, rng.integers(3))])
        # Bounds come before the block, so an element must exceed them; shares come after it, so it must reach them.
        around = np.concatenate([bounds[None], block, shares])
        ranked = reference.top_k(around, len(around), axis=0, **options).indices
        expected = []
        for column in ranked.T:
            last = max([list(column).index(rows + 1 + share) for share in range(len(shares))], default=len(column))
            better = column[: min(list(column).index(0), last)]
            expected.append(np.sort(better[better <= rows]) - 1)
        room = max(len(beats) for beats in expected)
        for parts, most in zip(rng.permutation(THREADS), (1, max(room // 2, 1), room + 1), strict=True):
            counts, values, positions = filtered(block, bounds, shares, most, parts, **options)
            case = f"{dtype}, {name}, {len(shares)} shares, {parts} parts, room for {most}"
            assert counts.tolist() == [len(beats) for beats in expected], case
            for column, beats in enumerate(expected):
                kept = beats[:most]
                assert positions[column].tolist() == [*(kept + 1000), *[-1] * (most - len(kept))], case
                assert values[column, : len(kept)].tobytes() == block[kept, column].tobytes(), case


@pytest.mark.parametrize("dtype", TOP_K_TYPES, ids=str)
def test_a_search_finds_what_the_reference_finds(dtype):
    rng = np.random.default_rng(12)
    steps = itertools.cycle([1, 7, 16, 50])
    for name, _, options in block_cases(dtype):
        columns, k, step = int(rng.integers(1, 300)), int(rng.integers(1, 6)), next(steps)
        threads = int(rng.choice(THREADS))
        make = list(DISTRIBUTIONS.values())[rng.integers(3)]
        lay_out = list(KERNEL_LAYOUTS.values())[rng.integers(len(KERNEL_LAYOUTS))]
        x = lay_out(make(rng, (120, columns), dtype))
        expected = reference.top_k(x, k, axis=0, **options)
        with use_budget(threads, grain=1):
            search = Search(call_of(columns, k, dtype, **options))
            for start, stop in itertools.pairwise([0, *range(40, 120, step), 120]):
                search.look_at(x[start:stop], start)
            found = search.winners()
        assert_same_bits(found, expected, f"{dtype}, {name}, {columns} columns, {k=}, {step=}, {threads} threads")


@pytest.mark.parametrize("dtype", TOP_K_TYPES, ids=str)
def test_searches_among_different_rows_find_it_together(dtype):
    rng = np.random.default_rng(15)
    counts = set()
    for (name, _, options), count in zip(block_cases(dtype), itertools.cycle((2, 3)), strict=False):
        columns, k = int(rng.integers(1, 200)), int(rng.integers(1, 8))
        x = list(DISTRIBUTIONS.values())[rng.integers(3)](rng, (60 * count, columns), dtype)
        shares = [None] * count
        call = call_of(columns, k, dtype, **options)
        searches = [Search(call, shares=shares, own=own) for own in range(count)]
        blocks = [(own, 60 * own + start) for start in range(0, 60, 12) for own in range(count)]
        if rng.integers(2):  # one search is behind the others
            blocks.sort(key=lambda block: (block[0] == 1, block[1]))
        for own, start in blocks:
            searches[own].look_at(x[start : start + 12], start)
            counts.add(searches[own]._shared_bounds().size // columns)
        for other in searches[1:]:
            searches[0].add(other)
        expected = reference.top_k(x, k, axis=0, **options)
        assert_same_bits(searches[0].winners(), expected, f"{dtype}, {name}, {columns} columns, {k=}, {count} searches")
    assert counts == {0, 2, 3}


@pytest.mark.parametrize("room", [1, 3])
def test_a_search_with_little_room_for_candidates(room, monkeypatch):
    monkeypatch.setattr(top_k_search, "_CANDIDATES", room)
    rng = np.random.default_rng(13)
    x = np.sort(rng.standard_normal((600, 70), np.float32), axis=0)  # the best come last
    x[:, ::3] = x[::-1, ::3]
    x[:, 1::3] = rng.integers(0, 4, x[:, 1::3].shape)
    for k, largest in itertools.product((1, 9), (True, False)):
        search = Search(call_of(70, k, x.dtype, largest=largest))
        for start in range(0, 600, 30):
            search.look_at(x[start : start + 30], start)
        assert_same_bits(search.winners(), reference.top_k(x, k, axis=0, largest=largest), f"{k=}, {largest=}")
