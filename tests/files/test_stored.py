"""Regions of elements in files, with limits so small that every way of reading is taken."""

import io
import math
import os
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, strategies as st

from dmlcpu.common.regions import Region, Tensor
from dmlcpu.files import stored
from dmlcpu.files.stored import Storage, StoredSink, StoredSource, open_file


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("stored") / "elements"


SMALL = {"_SPAN": 256, "_SHORT": 40, "_GAP": 24, "_TILE": 256, "_RUN": 40}
LIMITS = {"as it is": {"_SPAN": stored._SPAN}, "small": SMALL, "no gaps": SMALL | {"_SHORT": 0}}


@pytest.fixture(params=LIMITS, scope="class")
def _limits(request: pytest.FixtureRequest) -> Iterator[None]:
    with mock.patch.multiple(stored, **LIMITS[request.param]):
        yield


@st.composite
def regions(draw: st.DrawFn) -> tuple[tuple[int, ...], Region]:
    shape = tuple(draw(st.lists(st.integers(1, 9), max_size=4)))
    ends = [sorted(draw(st.tuples(st.integers(0, size), st.integers(0, size)))) for size in shape]
    return shape, tuple(slice(start, stop) for start, stop in ends)


@pytest.mark.usefixtures("_limits")
class TestRegions:
    @given(regions(), st.sampled_from("CF"), st.sampled_from(["u1", "f4", "c16", "V3"]))
    def test_reads_regions(self, path: Path, of: tuple[tuple[int, ...], Region], order: str, dtype: str) -> None:
        shape, region = of
        size = np.dtype(dtype).itemsize
        raw = np.random.default_rng(3).integers(0, 100, math.prod(shape) * size, "u1")
        array = np.ndarray(shape, dtype, raw, order=order)
        path.write_bytes(b"head" + raw.tobytes())
        with StoredSource(open_file(path), Storage(Tensor(shape, array.dtype), 4, order == "F")) as source:
            assert source.read(region).tobytes() == array[region].tobytes()

    @given(regions(), st.sampled_from("CF"), st.booleans())
    def test_writes_regions(self, path: Path, of: tuple[tuple[int, ...], Region], order: str, apart: bool) -> None:
        shape, region = of
        array = np.random.default_rng(3).integers(0, 100, shape, "i4")
        block = np.array(array[region], order=order)
        if apart and block.ndim:
            block = np.repeat(block, 2, axis=-1)[..., ::2]
        path.write_bytes(bytes(4 + array.nbytes))
        with io.FileIO(path, "r+") as file:
            StoredSink(file, 4, Tensor(shape, array.dtype)).write(region, block)
        expected = np.zeros_like(array)
        expected[region] = array[region]
        assert path.read_bytes()[4:] == expected.tobytes()


class HalfAtATime:
    """Reads and writes that stop early, as those of 2 GB and of signals do."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls = 0
        for name in ("_read_some", "_write_some"):
            monkeypatch.setattr(stored, name, self._less(getattr(stored, name)))

    def _less(self, some):  # type: ignore[no-untyped-def]
        def less(file: io.FileIO, offset: int, data: np.ndarray) -> int:
            self.calls += 1
            return some(file, offset, data[: max(1, data.size // 2)])

        return less


def test_goes_on_after_a_short_read_or_write(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    array = np.arange(1000)
    less = HalfAtATime(monkeypatch)
    with io.FileIO(path, "w+") as file:
        StoredSink(file, 0, Tensor(array.shape, array.dtype)).write((slice(0, 1000),), array)
        assert less.calls > 10
        with StoredSource(file, Storage(Tensor(array.shape, array.dtype), 0)) as source:
            np.testing.assert_array_equal(source.read(), array)
    assert less.calls > 20


def test_without_calls_that_take_a_position(path: Path) -> None:
    # As on Windows: a second copy of the module, where os has no preadv.
    module = type(stored)("stored_elsewhere")
    source = Path(stored.__file__).read_text().replace('hasattr(os, "preadv")', "False")
    exec(compile(source, stored.__file__, "exec"), module.__dict__)
    array = np.arange(60).reshape(3, 20)
    with io.FileIO(path, "w+") as file:
        module.StoredSink(file, 8, Tensor(array.shape, array.dtype)).write((slice(0, 3), slice(0, 20)), array)
        reader = module.StoredSource(file, Storage(Tensor(array.shape, array.dtype), 8))
        np.testing.assert_array_equal(reader.read((slice(1, 3), slice(5, 9))), array[1:3, 5:9])


@pytest.mark.skipif(not hasattr(os, "preadv"), reason="counts calls of preadv")
def test_reads_little_more_than_the_region(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    array = np.zeros((64, 16384), "f4")
    path.write_bytes(array.tobytes())
    sizes: list[int] = []

    def counted(file: int, buffers: list[memoryview], offset: int) -> int:
        sizes.append(sum(map(len, buffers)))
        return preadv(file, buffers, offset)

    preadv = os.preadv
    monkeypatch.setattr(os, "preadv", counted)
    source = StoredSource(open_file(path), Storage(Tensor(array.shape, array.dtype), 0))
    for region, calls, nbytes in [
        ((slice(0, 64), slice(0, 16384)), 1, array.nbytes),
        ((slice(8, 16), slice(0, 16384)), 1, array.nbytes // 8),
        ((slice(0, 64), slice(0, 8192)), 64, array.nbytes // 2),  # long runs: a call each
        ((slice(0, 64), slice(0, 4)), 64, 64 * 16),  # far apart: a call each
        ((slice(0, 64), slice(0, 14336)), 64, array.nbytes * 7 // 8),
    ]:
        sizes.clear()
        source.read(region)
        assert (len(sizes), sum(sizes)) == (calls, nbytes)
    narrow = StoredSource(open_file(path), Storage(Tensor((1024, 1024), array.dtype), 0))
    sizes.clear()
    narrow.read((slice(0, 1024), slice(0, 512)))  # short runs, close together: through spans of 1 MiB
    assert len(sizes) == 4
    source.close()
    narrow.close()


def test_large_blocks_in_another_order_are_written_in_large_pieces(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    array = np.random.default_rng(5).integers(0, 255, (1024, 4096), "u1").T
    sizes: list[int] = []

    def counted(file: io.FileIO, offset: int, data: np.ndarray) -> int:
        sizes.append(data.size)
        return write(file, offset, data)

    write = stored._write_some
    monkeypatch.setattr(stored, "_write_some", counted)
    with io.FileIO(path, "w") as file:
        StoredSink(file, 0, Tensor(array.shape, array.dtype)).write((slice(0, 4096), slice(0, 1024)), array)
    assert sizes == [1 << 20] * 4
    assert path.read_bytes() == array.tobytes()
