"""`dmlcpu.bind`: the memory of what is bound stays where it is, and is freed with the last reference."""

import gc
import mmap
import weakref
from array import array as python_array

import numpy as np
import pytest
from operators.bound_calls import CALLS, LAYOUTS, each_operator, function
from samples import as_tuple, assert_same_bits

import dmlcpu


@each_operator
def test_changes_of_an_array_object_do_not_reach_what_is_bound(operator):
    args, kwargs = CALLS[operator]()
    expected = as_tuple(function(operator)(*args, **kwargs))
    out = tuple(map(np.empty_like, expected))
    run = dmlcpu.bind(function(operator), *args, **kwargs, out=out if len(out) > 1 else out[0])
    for array in (*[value for value in args if isinstance(value, np.ndarray)], *out):
        array.flags.writeable = False
        array.shape = (1, *array.shape, 1)
    assert_same_bits(
        [each.reshape(right.shape) for each, right in zip(as_tuple(run()), expected, strict=True)], expected
    )


@each_operator
def test_no_array_is_resized_while_it_is_bound(operator):
    args, kwargs = CALLS[operator]()
    arrays = [value for value in args if isinstance(value, np.ndarray)]
    out = tuple(map(np.empty_like, as_tuple(function(operator)(*args, **kwargs))))
    run = dmlcpu.bind(function(operator), *args, **kwargs, out=out if len(out) > 1 else out[0])
    for array in (*arrays, *out):
        with pytest.raises(ValueError, match="cannot resize"):
            array.resize((100_000,), refcheck=False)
    run()
    del run
    gc.collect()
    arrays[0].resize((100_000,), refcheck=False)


@pytest.mark.parametrize("view", [np.frombuffer, lambda buffer, dtype: np.ndarray(3, dtype, buffer)])
def test_no_buffer_is_resized_or_closed_while_it_is_bound(view):
    room, pages = bytearray(12), mmap.mmap(-1, 12)
    x, values = view(room, np.float32), view(pages, np.float32)[:1]
    run = dmlcpu.bind(dmlcpu.top_k, x, 1, out=(values, np.empty(1, np.int64)))
    x[...] = 3, 5, 4
    del x, values
    with pytest.raises(BufferError):
        room.extend(b"more")
    with pytest.raises(BufferError):
        pages.close()
    assert run().values == 5


def test_no_buffer_is_resized_that_is_bound_itself():
    room, numbers = bytearray(4), python_array("b", [1, 2])
    run = dmlcpu.bind(dmlcpu.scatter_nd, room, np.array([[1]]), np.array([7], np.uint8))
    product = dmlcpu.bind(dmlcpu.matmul_integer, numbers, None, np.ones((2, 2), np.int8), None)
    room[0], numbers[0] = 5, 3
    for grow in (lambda: room.extend(b"more"), lambda: numbers.append(3)):
        with pytest.raises(BufferError):
            grow()
    assert run().tolist() == [5, 7, 0, 0]
    assert product().tolist() == [5, 5]


@each_operator
@pytest.mark.parametrize("layout", ["packed", "byte-swapped"])
def test_memory_is_freed_with_the_last_reference(operator, layout):
    args, kwargs = CALLS[operator]()
    args = [LAYOUTS[layout](value) if isinstance(value, np.ndarray) else value for value in args]
    gc.collect()
    gc.disable()
    try:
        run = dmlcpu.bind(function(operator), *args, **kwargs)
        run()
        first = weakref.ref(args[0])
        del args, run
        assert first() is None
    finally:
        gc.enable()


@each_operator
def test_arrays_live_as_long_as_they_are_bound(operator):
    args, kwargs = CALLS[operator]()
    expected = as_tuple(function(operator)(*args, **kwargs))
    run = dmlcpu.bind(function(operator), *args, **kwargs)
    first = weakref.ref(args[0])
    del args
    gc.collect()
    assert first() is not None
    assert_same_bits(as_tuple(run()), expected)
    del run
    gc.collect()
    assert first() is None


def test_the_memory_of_a_tensor_outlives_other_memory_for_the_tensor():
    torch = pytest.importorskip("torch")
    for given in (lambda tensor: tensor, lambda tensor: tensor.numpy()):
        tensor = torch.arange(5.0)
        run = dmlcpu.bind(dmlcpu.top_k, given(tensor), 1)
        with pytest.raises(RuntimeError, match="not resizable"):
            tensor.resize_(1000)
        tensor.set_(torch.zeros(5))
        gc.collect()
        assert run().indices == 4
