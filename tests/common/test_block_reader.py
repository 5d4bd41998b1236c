import tracemalloc

import numpy as np
import pytest
from sources import Watched

from dmlcpu.common.block_reader import InMemory, extent, read_blocks, regions_of, tile_of
from dmlcpu.common.regions import Stopped
from dmlcpu.operators import OPERATORS


@pytest.mark.parametrize("most", [0, 1, 5, 7, 20, 34, 35, 1000])
@pytest.mark.parametrize("shape", [(), (5,), (3, 5, 7), (2, 1, 4), (4, 0)])
def test_regions_cover_an_array_once_in_c_order(shape, most):
    x = np.arange(np.prod(shape, dtype=int)).reshape(shape)
    tile = tile_of(shape, most)
    regions = list(regions_of(shape, tile))
    assert all(np.prod(extent(region), dtype=int) <= max(1, most) for region in regions)
    found = [x[region].ravel() for region in regions]
    assert np.array_equal(np.concatenate([*found, []]), x.ravel())


def test_a_block_is_good_until_the_next():
    x = Watched(np.arange(100.0))
    regions = list(regions_of(x.shape, (7,)))
    blocks = read_blocks(x, regions, lambda: False)
    for region, block in blocks:
        assert block.tolist() == x.array[region].tolist()
        block[...] = -1


def test_room_is_left_before_blocks():
    x = Watched(np.arange(60.0).reshape(1, 20, 3))
    for source in (x, InMemory(x.array)):
        for region, block in read_blocks(source, regions_of(x.shape, (1, 6, 3)), lambda: False, axis=1, front=2):
            assert np.array_equal(block[:, 2:], x.array[region])


def test_an_array_in_memory_is_copied_if_blocks_are_written_to():
    x = np.arange(10)
    for _, block in read_blocks(InMemory(x), regions_of(x.shape, (3,)), lambda: False, copies=True):
        block[...] = -1
    assert x.tolist() == list(range(10))


def test_it_stops():
    looks = iter([False, True])
    blocks = read_blocks(InMemory(np.arange(10)), regions_of((10,), (1,)), lambda: next(looks))
    assert next(blocks)[1] == 0
    with pytest.raises(Stopped):
        next(blocks)


class Nowhere:
    """A Sink that keeps nothing."""

    def write(self, region, block):
        pass


def large_calls():
    rng = np.random.default_rng(0)
    x = rng.random((3000, 500), np.float32)
    a, b = rng.integers(0, 255, (2000, 800)).astype(np.uint8), rng.integers(0, 255, (800, 900)).astype(np.uint8)
    zeros = {"a_zero_point": None, "b_zero_point": None}
    return [
        ("top_k", {"x": x, "k": 9}),
        ("top_k", {"x": x, "k": 9, "axis": 0}),
        ("top_k", {"x": x.ravel(), "k": 900}),
        ("scatter_nd", {"x": x, "indices": rng.integers(0, 3000, (1500, 1)), "updates": x[:1500]}),
        ("scatter_nd", {"x": x, "indices": np.zeros((3, 0), int), "updates": np.stack([x] * 3)}),
        (
            "scatter_nd",
            {"x": x.ravel(), "indices": rng.integers(0, x.size, (90_000, 1)), "updates": x.ravel()[:90_000]},
        ),
        ("matmul_integer", {"a": a, "b": b, **zeros}),
        (
            "quantized_matmul",
            {"a": a, "a_scale": 1, "b": b, "b_scale": 1, "y_scale": 99, "y_zero_point": None, **zeros},
        ),
    ]


@pytest.mark.parametrize(("operator", "arguments"), large_calls())
def test_what_is_held_stays_within_the_memory(operator, arguments, monkeypatch):
    monkeypatch.setenv("DMLCPU_KEEP_RESULTS", "0")
    row = OPERATORS[operator]
    sources = {name: Watched(value) if name in row.blocks.SOURCES else value for name, value in arguments.items()}
    sinks = dict.fromkeys(row.results, Nowhere())
    limit = 1 << 20
    assert row.blocks.estimate(**sources).least_memory < limit < row.blocks.estimate(**sources).memory // 2
    row.blocks.run(sources, sinks, limit, lambda: False)  # what compiling takes is not counted
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        row.blocks.run(sources, sinks, limit, lambda: False)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak - before < 1.05 * limit + (64 << 10)  # small things of Python's
