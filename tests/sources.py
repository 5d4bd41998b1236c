"""Arrays that are read and written a region at a time, and that check the accesses."""

import threading

import numpy as np
import pytest

from dmlcpu.operators import OPERATORS


class Watched:
    """A Source over an array that counts reads."""

    def __init__(self, array: np.ndarray) -> None:
        self.array, self.shape, self.dtype = array, array.shape, array.dtype
        self.read_bytes = 0
        self.reads = 0
        self._counting = threading.Lock()

    def read(self, region=None, into=None):
        region = tuple(slice(0, n) for n in self.shape) if region is None else region
        assert len(region) == len(self.shape)
        for each, n in zip(region, self.shape, strict=True):
            assert each.step is None
            assert 0 <= each.start <= each.stop <= n
        part = self.array[region]
        if into is None:
            into = np.empty(part.shape, part.dtype)
        assert into.shape == part.shape
        assert into.dtype == part.dtype
        assert into.flags.c_contiguous
        into[...] = part
        with self._counting:
            self.read_bytes += part.nbytes
            self.reads += 1
        return into


class Unreadable(Watched):
    """A Source that must not be read."""

    def read(self, region=None, into=None):
        raise AssertionError("read")


class Once:
    """A Sink that takes each element once."""

    def __init__(self, tensor) -> None:
        self.array = np.empty(tensor.shape, tensor.dtype)
        self.times = np.zeros(tensor.shape, np.uint8)

    def write(self, region, block) -> None:
        part = self.array[region]
        assert block.shape == part.shape
        assert block.dtype == part.dtype
        self.array[region] = block
        self.times[region] += 1


def in_blocks(operator: str, arguments: dict, memory: int | None = None, stopping=lambda: False) -> tuple:
    """Return the results of a call of an operator on Sources, within `memory`, or the least memory if that is more."""
    blocks = OPERATORS[operator].blocks
    least = blocks.estimate(**arguments).least()
    sinks = {name: Once(tensor) for name, tensor in blocks.estimate(**arguments).results.items()}
    assert tuple(sinks) == OPERATORS[operator].results
    blocks.run(arguments, sinks, least if memory is None else max(least, memory), stopping)
    for sink in sinks.values():
        assert (sink.times == 1).all()
    return tuple(sink.array for sink in sinks.values())


def assert_refused_alike(operator: str, arguments: dict, error: type[Exception], message: str) -> None:
    """Check that a call is refused before anything but indices is read, with the function's error."""
    row = OPERATORS[operator]
    sources = {name: (Watched if name == "indices" else Unreadable)(arguments[name]) for name in row.blocks.SOURCES}
    with pytest.raises(error, match=message) as refused:
        row.blocks.estimate(**{**arguments, **sources})
    with pytest.raises(error) as of_function:
        row.function(**arguments)
    assert type(refused.value) is type(of_function.value)
    assert refused.value.args == of_function.value.args


def arguments_of(call) -> dict:
    """Return all arguments of a random call by name, as Sources where possible."""
    row = OPERATORS[call.operator]
    names = list(row.function.__code__.co_varnames)
    arguments = {**dict(zip(names, call.args, strict=False)), **call.kwargs}
    return {name: source_of(value) if name in row.blocks.SOURCES else value for name, value in arguments.items()}


def source_of(value):
    """Return an array as a Source, with aligned elements in native byte order; return other things unchanged."""
    if not isinstance(value, np.ndarray):
        return value
    return Watched(np.ascontiguousarray(value.astype(value.dtype.newbyteorder("="))).reshape(value.shape))
