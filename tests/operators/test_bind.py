"""`dmlcpu.bind` for every operator: what is read again at each call, and what is refused."""

import copy
import pickle

import numpy as np
import pytest
from operators.bound_calls import CALLS, LAYOUTS, each_operator, function
from samples import as_tuple, assert_same_bits, strided

import dmlcpu
from dmlcpu import reference
from dmlcpu.common.bound import BoundOperator
from dmlcpu.errors import BindingError, DmlError, IndexOutOfRangeError
from dmlcpu.runtime.threads import use_budget


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


def test_lists_of_small_integers_are_constants():
    a = [[np.int8(1), np.int8(2)]]
    run = dmlcpu.bind(dmlcpu.matmul_integer, a, None, np.ones((2, 1), np.int8), None)
    a.clear()
    assert run().tolist() == [[3]]


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


def test_an_array_that_is_converted_is_read_each_time_though_it_lies_among_one_that_is_not():
    fields = [("x", "<f4"), ("scale", "<f4"), ("swapped", ">f4"), ("byte", "u1"), ("misaligned", "<f4"), ("", "u1", 3)]
    records = np.zeros(4, fields)
    records["x"] = 1, 2, 3, 4
    for name in ("scale", "swapped", "misaligned"):
        records[name] = 1
        run = dmlcpu.bind(dmlcpu.quantize_linear, records["x"], records[name], axis=0)
        assert run().tolist() == [1, 2, 3, 4]
        records[name] = 0.5
        assert run().tolist() == [2, 4, 6, 8]


def test_a_read_only_view_is_read_each_time_though_the_array_is_bound_too():
    (a, _, _, b, scale, *_), _ = CALLS["quantized_matmul"]()
    view = np.broadcast_to(scale, scale.shape)
    run = dmlcpu.bind(dmlcpu.quantized_matmul, a, view, None, b, scale, None, 1.0, None)
    scale += 1
    np.testing.assert_array_equal(run(), reference.quantized_matmul(a, view, None, b, scale, None, 1.0, None))


def test_an_option_that_cannot_be_hashed_is_bound():
    class Described:
        dtype, __hash__ = np.dtype(np.int32), None

    run = dmlcpu.bind(dmlcpu.top_k, x := np.array([1.0, 3.0, 2.0]), 1, index_dtype=Described())
    for threads in (1, 3):
        with use_budget(threads, grain=1):
            assert run().indices.tolist() == [1]
    x[2] = 9
    assert run().indices.tolist() == [2]


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
    args, _ = CALLS["quantized_matmul"]()
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
def test_what_the_function_refuses_is_refused_when_it_is_bound(operator):
    args, kwargs = CALLS[operator]()
    refused = [None, np.ma.masked_array(args[0])]
    if operator != "gather_elements":  # which takes any type
        refused.append(args[0].astype("M8[s]"))
    for bad in ([each, *args[1:]] for each in refused):
        with pytest.raises((TypeError, DmlError)) as direct:
            function(operator)(*bad, **kwargs)
        with pytest.raises(type(direct.value)) as bound:
            dmlcpu.bind(function(operator), *bad, **kwargs)
        assert str(bound.value) == str(direct.value)
    with pytest.raises(TypeError, match=rf"^{operator}\(\) missing a required argument"):
        dmlcpu.bind(function(operator))
    out = overlapping(operator, args, kwargs)
    with pytest.raises(BindingError, match=f"{operator}: out.* sharing memory with"):
        dmlcpu.bind(function(operator), *args, **kwargs, out=out)
    frozen = tuple(map(np.empty_like, as_tuple(function(operator)(*args, **kwargs))))
    frozen[0].flags.writeable = False
    with pytest.raises(BindingError, match=f"{operator}: out.* is read-only"):
        dmlcpu.bind(function(operator), *args, **kwargs, out=frozen if len(frozen) > 1 else frozen[0])


def overlapping(operator, args, kwargs):
    """Return an output, the first of several, that shares memory with the first argument, which is put there."""
    first, *others = as_tuple(function(operator)(*args, **kwargs))
    start, nbytes = args[0].itemsize, args[0].nbytes  # not the same memory: some operators work in place
    memory = np.zeros(start + nbytes + first.nbytes, np.uint8)
    moved = memory[start : start + nbytes].view(args[0].dtype).reshape(args[0].shape)
    moved[...] = args[0]
    args[0] = moved
    out = memory[: first.nbytes].view(first.dtype).reshape(first.shape)
    return (out, *map(np.empty_like, others)) if others else out


@pytest.mark.parametrize("other", [np.add, dmlcpu.add_at, "top_k", None, dmlcpu.reference.top_k])
def test_only_functions_of_operators_are_bound(other):
    with pytest.raises(TypeError, match=r"bind: function is .*; allowed: dmlcpu.top_k, .*dmlcpu.scatter_nd"):
        dmlcpu.bind(other, np.ones(3), 1)


def test_what_is_bound_is_not_copied_or_pickled():
    run = dmlcpu.bind(dmlcpu.top_k, np.ones(3), 1)
    assert isinstance(run, BoundOperator)
    assert repr(run) == "<BoundOperator top_k>"
    for make in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="top_k: a bound operator is bound to memory of this process"):
            make(run)
