"""`dmlcpu.bind` for every operator: what is bound, what is read again, and what is refused."""

import copy
import gc
import mmap
import os
import pickle
import textwrap
import weakref
from array import array as python_array
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import processes
import pytest
from samples import as_tuple, assert_same_bits, misaligned, strided, swapped

import dmlcpu
from dmlcpu import reference
from dmlcpu.common.bound import BoundOperator
from dmlcpu.errors import BindingError, DmlError, IndexOutOfRangeError
from dmlcpu.operators import OPERATORS
from dmlcpu.runtime.threads import limit_threads, use_budget


def top_k():
    return [np.array([3, 1, 2, 9, 7], np.float32), 2], {}


def scatter_nd():
    return [np.arange(6.0), np.array([[1], [4]]), np.array([7.0, 8.0])], {"reduction": "add"}


def quantized_matmul():
    a, b = np.array([[10, 20], [30, 40]], np.uint8), np.array([[1, -1], [2, -2]], np.int8)
    scale = np.array([0.5, 0.25], np.float32)
    return [a, np.array(0.5, np.float32), np.array([3], np.uint8), b, scale, None, np.float32(2), 9], {}


def matmul_integer():
    a, b = np.array([[10, 20], [30, 40]], np.uint8), np.array([[1, -1], [2, -2]], np.int8)
    return [a, np.array([3, 4], np.uint8), b, np.array([1, -1], np.int8)], {}


CALLS = {call.__name__: call for call in (top_k, scatter_nd, quantized_matmul, matmul_integer)}
LAYOUTS = {
    "packed": np.copy,
    "strided": strided,
    "misaligned": misaligned,
    "byte-swapped": swapped,
    "F": np.asfortranarray,
}
each_operator = pytest.mark.parametrize("operator", CALLS)


def function(operator):
    return OPERATORS[operator].function


@each_operator
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("parts", [1, 3])
def test_each_call_reads_the_values_of_that_time(operator, layout, parts):
    args, kwargs = CALLS[operator]()
    args = [LAYOUTS[layout](value) if isinstance(value, np.ndarray) else value for value in args]
    with use_budget(parts, grain=1 if parts > 1 else 40_000):
        run = dmlcpu.bind(function(operator), *args, **kwargs)
        outputs = as_tuple(run.outputs)
        for place, value in enumerate(args):
            if isinstance(value, np.ndarray):
                value[...] = value + 1
            assert_same_bits(as_tuple(run()), as_tuple(function(operator)(*args, **kwargs)), f"after argument {place}")
        assert all(mine is other for mine, other in zip(as_tuple(run()), outputs, strict=True))


@each_operator
def test_results_go_to_given_outputs_of_any_stride(operator):
    args, kwargs = CALLS[operator]()
    expected = as_tuple(function(operator)(*args, **kwargs))
    for make in (np.empty_like, strided):
        out = tuple(make(each) for each in expected)
        run = dmlcpu.bind(function(operator), *args, **kwargs, out=out if len(out) > 1 else out[0])
        assert all(mine is other for mine, other in zip(as_tuple(run()), out, strict=True))
        assert_same_bits(out, expected)


@each_operator
def test_numbers_and_lists_are_constants(operator):
    args, kwargs = CALLS[operator]()
    matrices = [place for place, value in enumerate(args) if place == 0 or (np.ndim(value) == 2 and place < 4)]
    lists = [
        each.tolist() if isinstance(each, np.ndarray) and i not in matrices else each for i, each in enumerate(args)
    ]
    run = dmlcpu.bind(function(operator), *lists, **kwargs)
    expected = as_tuple(function(operator)(*lists, **kwargs))
    for value in lists:
        if isinstance(value, list):
            value.clear()
    assert_same_bits(as_tuple(run()), expected)


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


def test_lists_of_small_integers_are_constants():
    a = [[np.int8(1), np.int8(2)]]
    run = dmlcpu.bind(dmlcpu.matmul_integer, a, None, np.ones((2, 1), np.int8), None)
    a.clear()
    assert run().tolist() == [[3]]


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


def test_a_scatter_is_bound_in_place():
    for view in (lambda x: x, lambda x: x[:], lambda x: x.reshape(2, 3).reshape(6)):
        bins = np.zeros(6, np.int64)
        run = dmlcpu.bind(
            dmlcpu.scatter_nd, bins, np.array([[1], [1], [4]]), np.array([1, 2, 3]), reduction="add", out=view(bins)
        )
        for _ in range(3):
            run()
        assert bins.tolist() == [0, 9, 0, 0, 9, 0]


@pytest.mark.parametrize("mode", ["raise", "drop", "clip"])
def test_an_input_of_other_strides_than_the_output_is_copied_at_each_call(mode):
    x = strided(np.arange(6.0))
    run = dmlcpu.bind(dmlcpu.scatter_nd, x, np.array([[1], [4]]), np.array([7.0, 8.0]), mode=mode)
    for start in (0, 10):
        x[...] = np.arange(6) + start
        assert run().tolist() == [start, 7, start + 2, start + 3, 8, start + 5]


def test_scales_may_share_memory_with_the_output():
    memory = np.zeros(4496, np.uint8)
    a, scales, b = np.full((1024, 3), 7, np.uint8), memory[:4096].view(np.float32), np.ones((3, 4), np.int8)
    scales[...] = np.linspace(0.5, 9, 1024)
    run = dmlcpu.bind(dmlcpu.quantized_matmul, a, scales, None, b, 1.0, None, 2.0, 9, out=memory[400:].reshape(1024, 4))
    expected = reference.quantized_matmul(a, scales, None, b, 1.0, None, 2.0, 9)
    np.testing.assert_array_equal(run(), expected)


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("mode", ["raise", "drop", "clip"])
@pytest.mark.parametrize("shape", [(6,), (4, 3)])
def test_many_updates_of_few_elements_are_written_to_a_copy_first(shape, mode, in_place):
    rng = np.random.default_rng(0)
    x, indices = rng.integers(0, 9, shape), rng.integers(-4, 4, (3000, 1))
    updates = rng.integers(0, 9, (3000, *shape[1:]))
    out = x if in_place else np.empty_like(x)
    with use_budget(1):
        run = dmlcpu.bind(dmlcpu.scatter_nd, x, indices, updates, reduction="add", mode=mode, out=out)
        for _ in range(3):
            expected = reference.scatter_nd(x, indices, updates, reduction="add", mode=mode)
            np.testing.assert_array_equal(run(), expected)
        indices[2999] = 50
        if mode == "raise":
            with pytest.raises(IndexOutOfRangeError, match=r"scatter_nd: indices\[2999, 0\] is 50;"):
                run()
        else:
            expected = reference.scatter_nd(x, indices, updates, reduction="add", mode=mode)
            run()
        np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("shape", [(6,), (4000,)])
def test_an_index_that_leaves_its_range_is_refused_before_anything_is_written(shape, in_place):
    x, indices = np.arange(float(shape[0])), np.array([[1], [4]])
    out = x if in_place else np.full_like(x, -1)
    run = dmlcpu.bind(dmlcpu.scatter_nd, x, indices, np.array([7.0, 8.0]), out=out)
    before = out.copy()
    indices[1] = shape[0]
    for _ in range(2):
        with pytest.raises(IndexOutOfRangeError, match=rf"scatter_nd: indices\[1, 0\] is {shape[0]};"):
            run()
        np.testing.assert_array_equal(out, before)
    indices[1] = -1
    assert run()[-1] == 8


@pytest.mark.parametrize("bad", [0, -1, np.inf, np.nan])
@pytest.mark.parametrize("place", [1, 4])
def test_a_scale_that_became_bad_is_refused_before_anything_is_written(place, bad):
    args, _ = quantized_matmul()
    out = np.full((2, 2), 77, np.uint8)
    run = dmlcpu.bind(dmlcpu.quantized_matmul, *args, out=out)
    args[place].reshape(-1)[-1] = bad
    name = {1: r"a_scale", 4: r"b_scale\[1\]"}[place]
    with pytest.raises(DmlError, match=rf"quantized_matmul: {name} is "):
        run()
    assert (out == 77).all()


def test_counts_may_change_within_the_places_of_the_outputs():
    x, k = np.array([[1, 3, 2], [6, 5, 4]], np.int32), np.array([1, 2])
    run = dmlcpu.bind(dmlcpu.top_k, x, k)
    assert run().indices.tolist() == [[1, -1], [0, 1]]
    k[...] = 2, 0
    assert run().indices.tolist() == [[1, 2], [-1, -1]]
    for bad in (3, 1):
        k[...] = bad, 0
        if bad == 3:
            with pytest.raises(DmlError, match="top_k: k"):
                run()
        else:
            assert run().indices.tolist() == [[1, -1], [-1, -1]]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", ["k", "axis"])
def test_arrays_without_dimensions_are_read_as_well(layout, name):
    arguments = {"k": np.array(2), "axis": np.array(1)}
    run = dmlcpu.bind(dmlcpu.top_k, LAYOUTS[layout](np.array([[1, 3, 2], [6, 5, 4]], np.int32)), **arguments)
    before = [each.copy() for each in run()]
    arguments[name] -= 1
    with pytest.raises(BindingError, match=r"top_k: out\[0\].shape is \(2, 2\); allowed: \("):
        run()
    assert_same_bits(run.outputs, before)
    arguments[name] += 1
    assert run().indices.tolist() == [[1, 2], [0, 1]]


@each_operator
def test_settings_of_threads_are_those_of_the_call(operator):
    args, kwargs = CALLS[operator]()
    expected = as_tuple(function(operator)(*args, **kwargs))
    with use_budget(1):
        run = dmlcpu.bind(function(operator), *args, **kwargs)
    for threads in (2, 1, 5):
        with use_budget(threads, grain=1):
            assert_same_bits(as_tuple(run()), expected)
            with limit_threads(1):
                assert_same_bits(as_tuple(run()), expected)
    with use_budget(2, kernel="no_such_kernel"), pytest.raises(LookupError):
        run()
    assert_same_bits(as_tuple(run()), expected)


@each_operator
def test_what_the_function_refuses_is_refused_when_it_is_bound(operator):
    args, kwargs = CALLS[operator]()
    for bad in ([None, *args[1:]], [np.ma.masked_array(args[0]), *args[1:]], [args[0].astype("M8[s]"), *args[1:]]):
        with pytest.raises((TypeError, DmlError)) as direct:
            function(operator)(*bad, **kwargs)
        with pytest.raises(type(direct.value)) as bound:
            dmlcpu.bind(function(operator), *bad, **kwargs)
        assert str(bound.value) == str(direct.value)
    with pytest.raises(TypeError, match=rf"^{operator}\(\) missing a required argument"):
        dmlcpu.bind(function(operator), args[0])
    out = overlapping(operator, args)
    with pytest.raises(BindingError, match=f"{operator}: out.* sharing memory with"):
        dmlcpu.bind(function(operator), *args, **kwargs, out=out)
    frozen = tuple(map(np.empty_like, as_tuple(function(operator)(*args, **kwargs))))
    frozen[0].flags.writeable = False
    with pytest.raises(BindingError, match=f"{operator}: out.* is read-only"):
        dmlcpu.bind(function(operator), *args, **kwargs, out=frozen if len(frozen) > 1 else frozen[0])


def overlapping(operator, args):
    """Return an output that shares memory with an argument."""
    if operator == "top_k":
        return args[0][:2], np.empty(2, np.int64)
    if operator == "scatter_nd":
        return args[0][::-1]
    memory = np.zeros(16, np.uint8)
    args[0] = memory[:4].reshape(2, 2)
    return args[0] if operator == "quantized_matmul" else memory.view(np.int32).reshape(2, 2)


@pytest.mark.parametrize("other", [np.add, dmlcpu.add_at, "top_k", None, dmlcpu.reference.top_k])
def test_only_functions_of_operators_are_bound(other):
    with pytest.raises(TypeError, match=r"bind: function is .*; allowed: dmlcpu.top_k, dmlcpu.scatter_nd"):
        dmlcpu.bind(other, np.ones(3), 1)


def test_what_is_bound_is_not_copied_or_pickled():
    run = dmlcpu.bind(dmlcpu.top_k, np.ones(3), 1)
    assert isinstance(run, BoundOperator)
    assert repr(run) == "<BoundOperator top_k>"
    for make in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="top_k: a bound operator is bound to memory of this process"):
            make(run)


@each_operator
def test_several_threads_may_call(operator):
    args, kwargs = CALLS[operator]()
    expected = as_tuple(function(operator)(*args, **kwargs))
    run = dmlcpu.bind(function(operator), *args, **kwargs)
    with ThreadPoolExecutor(8) as pool:
        for found in [pool.submit(lambda: [run() for _ in range(300)][-1]) for _ in range(8)]:
            found.result()
    assert_same_bits(as_tuple(run.outputs), expected)


@each_operator
def test_a_call_within_a_call_has_workspace_of_its_own(operator):
    args, kwargs = CALLS[operator]()
    expected = as_tuple(function(operator)(*args, **kwargs))
    run = dmlcpu.bind(function(operator), *args, **kwargs)
    with run._free:  # as a signal handler finds it in the middle of a call
        for output in as_tuple(run.outputs):
            output[...] = 77
        assert_same_bits(as_tuple(run()), expected)
    assert not run._free.locked()


def test_a_refused_call_lets_the_next_one_run():
    indices = np.array([[9]])
    run = dmlcpu.bind(dmlcpu.scatter_nd, np.zeros(3), indices, np.ones(1))
    with pytest.raises(IndexOutOfRangeError):
        run()
    assert not run._free.locked()
    indices[...] = 1
    assert run().tolist() == [0, 1, 0]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system does not fork")
def test_a_forked_child_may_go_on():
    code = """
    import os
    import numpy as np
    import dmlcpu

    x = np.array([1.0, 3.0, 2.0])
    run = dmlcpu.bind(dmlcpu.top_k, x, 1)
    with run._free:  # as if another thread called meanwhile
        child = os.fork()
    x[0] = 9 if child == 0 else 0
    found = run().indices[0]
    if child == 0:
        os._exit(int(found))
    print(found, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """
    assert processes.run(textwrap.dedent(code)).split() == ["1", "0"]


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
