import tracemalloc
from functools import partial

import numpy as np
import pytest
from samples import large_calls
from sources import Unreadable, Watched

from dmlcpu.common.block_reader import InMemory, extent, read_blocks, regions_of, tile_of
from dmlcpu.common.regions import Stopped
from dmlcpu.errors import DmlError
from dmlcpu.operators import OPERATORS
from dmlcpu.runtime import memory, threads


@pytest.mark.parametrize("most", [0, 1, 5, 7, 20, 34, 35, 1000])
@pytest.mark.parametrize("shape", [(), (5,), (3, 5, 7), (2, 1, 4), (4, 0)])
def test_regions_cover_an_array_once_in_c_order(shape, most):
    x = np.arange(np.prod(shape, dtype=int)).reshape(shape)
    tile = tile_of(shape, most)
    regions = list(regions_of(shape, tile))
    assert all(np.prod(extent(region), dtype=int) <= max(1, most) for region in regions)
    found = [x[region].ravel() for region in regions]
    assert np.array_equal(np.concatenate([*found, []]), x.ravel())


def test_block_is_valid_until_the_next():
    x = Watched(np.arange(100.0))
    regions = list(regions_of(x.shape, (7,)))
    blocks = read_blocks(x, regions, lambda: False)
    for region, block in blocks:
        assert block.tolist() == x.array[region].tolist()
        block[...] = -1


def test_front_leaves_room_before_blocks():
    x = Watched(np.arange(60.0).reshape(1, 20, 3))
    for source in (x, InMemory(x.array)):
        for region, block in read_blocks(source, regions_of(x.shape, (1, 6, 3)), lambda: False, axis=1, front=2):
            assert np.array_equal(block[:, 2:], x.array[region])


def test_array_in_memory_is_copied_if_blocks_are_written():
    x = np.arange(10)
    for _, block in read_blocks(InMemory(x), regions_of(x.shape, (3,)), lambda: False, copies=True):
        block[...] = -1
    assert x.tolist() == list(range(10))


def test_read_blocks_stops_between_blocks():
    looks = iter([False, True])
    blocks = read_blocks(InMemory(np.arange(10)), regions_of((10,), (1,)), lambda: next(looks))
    assert next(blocks)[1] == 0
    with pytest.raises(Stopped):
        next(blocks)


class Nowhere:
    """A Sink that keeps nothing."""

    def write(self, region, block):
        pass


def peak_of(call):
    """Return the most bytes that Python and NumPy held during a call for which no workspace is kept."""
    memory._kept.clear()
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(("operator", "arguments"), large_calls())
def test_blocks_stay_within_the_memory_limit(operator, arguments, monkeypatch):
    monkeypatch.setenv("DMLCPU_KEEP_RESULTS", "0")
    row = OPERATORS[operator]
    sources = {name: Watched(value) if name in row.blocks.SOURCES else value for name, value in arguments.items()}
    sinks = dict.fromkeys(row.results, Nowhere())
    limit = 1 << 20
    assert row.blocks.estimate(**sources).least() < limit < row.blocks.estimate(**sources).memory // 2
    row.blocks.run(sources, sinks, limit, lambda: False)  # memory of compiling is not counted
    # Blocks have half of the size of the next larger ones, or more, and of some buffers the estimate is the most.
    least, most = 0.4 * limit, 1.05 * limit + (64 << 10)  # small Python objects
    # Up to three times: whether helpers are launched depends on time, and the first launch loads compiled code.
    peaks = (peak_of(partial(row.blocks.run, sources, sinks, limit, lambda: False)) for _ in range(3))
    assert any(least < peak < most for peak in peaks)


def with_a_bias_to_convert():
    """Return a large call with a bias of the result's shape, which is converted to float32."""
    operator = "matmul_integer_to_float"
    (arguments,) = [arguments for name, arguments in large_calls() if name == operator]
    return operator, {**arguments, "bias": np.ones((2000, 900), np.float16), "out_dtype": "float16"}


@pytest.mark.parametrize(("operator", "arguments"), [*large_calls(), with_a_bias_to_convert()])
def test_a_call_takes_the_memory_that_is_told(operator, arguments, monkeypatch):
    monkeypatch.setenv("DMLCPU_KEEP_RESULTS", "0")
    row = OPERATORS[operator]
    told = row.blocks.estimate(**arguments).memory
    row.function(**arguments)  # memory of compiling is not counted
    held = sum(value.nbytes for value in arguments.values() if isinstance(value, np.ndarray))
    peaks = (peak_of(partial(row.function, **arguments)) for _ in range(3))
    assert any(0.9 * told < held + peak < 1.01 * told for peak in peaks)


@pytest.mark.parametrize(("operator", "arguments"), large_calls())
def test_the_memory_that_is_told_does_not_depend_on_threads_that_sleep(operator, arguments, monkeypatch):
    """A call of now has fewer parts, and takes less memory, than one in a row of calls."""
    monkeypatch.setattr(threads, "budget", lambda *_: pytest.fail("an estimate is no call of now"))
    estimate = OPERATORS[operator].blocks.estimate(**arguments)
    assert 0 < estimate.least() <= estimate.memory


@pytest.mark.parametrize(("operator", "arguments"), large_calls())
def test_too_little_memory_is_refused_before_anything_is_read(operator, arguments):
    blocks = OPERATORS[operator].blocks
    unread = set(blocks.SOURCES) - {"indices"}  # indices are validated first
    sources = {name: Unreadable(value) if name in unread else value for name, value in arguments.items()}
    least = blocks.estimate(**sources).least()
    with pytest.raises(DmlError, match=f"memory is {least - 1:,} bytes; allowed: at least {least:,}"):
        blocks.run(sources, {}, least - 1, lambda: False)
