"""Calls of compiled operators: whatever is bound, and whatever else runs, the reference's bits or a refusal."""

import os
import signal
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import processes
import pytest
from desc_builders import OWNED, ROWS, quantized_desc, small_scatter_desc, tensor, top_k1_desc

from dmlcpu import compile_operator, reference
from dmlcpu.errors import BindingError, DmlError, IndexOutOfRangeError
from dmlcpu.kernels import registry
from dmlcpu.operators.scatter_nd.plan import prepare as prepare_scatter_nd
from dmlcpu.operators.top_k.plan import plan as plan_top_k
from dmlcpu.products.plan import prepare as prepare_product
from dmlcpu.runtime.memory import Workspace
from dmlcpu.runtime.threads import use_budget


def top_k(rng):
    x = rng.integers(0, 9, ROWS.shape).astype(np.float32)
    values, indices = reference.top_k(x, 2, index_dtype=np.uint32)
    return {"input_tensor": x}, {"output_value_tensor": values, "output_index_tensor": indices}


def scatter(rng):
    x, updates = (rng.random((1, n)).astype(np.float32) for n in (8, 4))
    indices = rng.integers(-8, 8, (4, 1)).astype(np.int32)
    out = reference.scatter_nd(x[0], indices, updates[0])[np.newaxis]
    return {"input_tensor": x, "indices_tensor": indices, "updates_tensor": updates}, {"output_tensor": out}


def quantized(rng):
    a, b = rng.integers(0, 255, (1, 2, 2, 3)).astype(np.uint8), rng.integers(-128, 127, (1, 2, 3, 4)).astype(np.int8)
    scales = [rng.random(shape).astype(np.float32) + np.float32(0.5) for shape in ((2, 1), (1, 4), (1, 1))]
    y_scale = scales[2] * np.float32(100)
    out = reference.quantized_matmul(a, scales[0], None, b, scales[1], None, y_scale, None, out_dtype=np.int8)
    a_scale, b_scale, y_scale = (each.reshape(1, 1, *each.shape) for each in (scales[0], scales[1], y_scale))
    scales = {"a_scale_tensor": a_scale, "b_scale_tensor": b_scale, "output_scale_tensor": y_scale}
    return {"a_tensor": a, "b_tensor": b, **scales}, {"output_tensor": out}


# A desc, a random call of it, and what plans its calls.
CASES = {
    "top_k": (top_k1_desc, top_k, plan_top_k),
    "scatter_nd": (small_scatter_desc, scatter, prepare_scatter_nd),
    "quantized_matmul": (quantized_desc, quantized, prepare_product),
}
each_case = pytest.mark.parametrize("case", CASES)


def compiled(case):
    return compile_operator(CASES[case][0]()), CASES[case][1]


def check(result, expected):
    results = result if isinstance(result, tuple) else (result,)
    for found, wanted in zip(results, expected.values(), strict=True):
        assert found.dtype == wanted.dtype
        np.testing.assert_array_equal(found, wanted)


FORMS = {
    "packed": np.copy,
    "a view": lambda x: np.concatenate([x, x])[len(x) :],
    "strided": lambda x: np.repeat(x, 2, axis=-1)[..., ::2],
    "read-only": lambda x: np.frombuffer(x.tobytes(), x.dtype).reshape(x.shape),
    "read-only view": lambda x: np.broadcast_to(x.copy(), x.shape),
    "misaligned": lambda x: np.frombuffer(bytearray(b"?" + x.tobytes()), np.uint8)[1:].view(x.dtype).reshape(x.shape),
    "buffer": lambda x: x.reshape(-1).copy(),
    "bytes": lambda x: x.tobytes(),
    "fortran": np.asfortranarray,
    "subclass": lambda x: x.view(type("Subclass", (np.ndarray,), {})),
    "type with metadata": lambda x: x.astype(np.dtype(x.dtype, metadata={"unit": "m"})),
}


@each_case
@pytest.mark.parametrize("form", FORMS)
def test_however_tensors_are_bound_the_results_are_the_references(case, form):
    op, call = compiled(case)
    inputs, expected = call(np.random.default_rng(6))
    forms = [{**inputs, name: FORMS[form](inputs[name])} for name in inputs]
    for others in (*forms, {name: FORMS[form](array) for name, array in inputs.items()}):
        check(op(**others), expected)
        given = {name: np.zeros_like(array) for name, array in expected.items()}
        check(op(**others, **given), expected)
        check(tuple(given.values()), expected)
        name, *_ = given
        result = op(**others, **{name: given[name]})  # some are new
        check(result, expected)
        assert (result[0] if isinstance(result, tuple) else result) is given[name]


@each_case
def test_calls_in_every_form_follow_one_another(case):
    """An operator asks once for calls whose tensors are packed, and each time for others."""
    op, call = compiled(case)
    rng = np.random.default_rng(7)
    for form in 2 * ("packed", *FORMS):
        inputs, expected = call(rng)
        check(op(**{name: FORMS[form](array) for name, array in inputs.items()}), expected)
        inputs, expected = call(rng)
        check(op(**inputs), expected)


def test_other_calls_follow_those_in_place():
    op, rng = compile_operator(small_scatter_desc()), np.random.default_rng(8)
    for _ in range(2):
        inputs, expected = scatter(rng)
        check(op(**inputs, output_tensor=inputs["input_tensor"]), expected)
        inputs, expected = scatter(rng)
        check(op(**inputs, output_tensor=np.empty((1, 8), np.float32)), expected)
        inputs, expected = scatter(rng)
        check(op(**inputs), expected)


@each_case
def test_calls_with_other_tensors_and_values_are_planned_once(case):
    op, call = compiled(case)
    plan, rng = CASES[case][2], np.random.default_rng(5)
    inputs, expected = call(rng)
    op(**inputs)
    misses = plan.cache_info().misses
    for _ in range(3):
        inputs, expected = call(rng)
        check(op(**inputs), expected)
        given = {name: np.zeros_like(array) for name, array in expected.items()}
        check(op(**{name: FORMS["a view"](array) for name, array in inputs.items()}, **given), expected)
    assert plan.cache_info().misses == misses


@each_case
def test_tensors_that_do_not_fit_are_refused_before_anything_is_written(case):
    op, call = compiled(case)
    inputs, expected = call(np.random.default_rng(7))
    name, *_ = inputs
    x = inputs[name]
    out_name, *_ = expected
    out = np.full_like(expected[out_name], 7)
    bad = [
        ({**inputs, "other_tensor": x}, "other_tensor is not a tensor of the desc"),
        ({key: value for key, value in inputs.items() if key != name}, "Tensor is missing; allowed"),
        ({**inputs, name: x[..., 1:]}, "Tensor is an array of"),
        ({**inputs, name: x.astype(np.int16)}, "Tensor is an array of int16"),
        ({**inputs, name: x.reshape(-1)[:-1]}, "Tensor is a buffer of"),
        ({**inputs, name: np.ma.masked_array(x)}, "Tensor is a masked array"),
        ({**inputs, name: x.tolist()}, "Tensor is list"),
        ({**inputs, out_name: np.frombuffer(out.tobytes(), out.dtype).reshape(out.shape)}, "Tensor is read-only"),
        ({**inputs, out_name: out[..., 1:]}, "Tensor is an array of"),
    ]
    for given, message in bad:
        with pytest.raises((DmlError, TypeError), match=message):
            op(**{out_name: out, **given})
    assert (out == 7).all()


def test_one_array_bound_twice_is_refused():
    desc = top_k1_desc(input_tensor=tensor("UINT32", 1, 1, 3, 4), output_value_tensor=tensor("UINT32", 1, 1, 3, 2))
    both = np.full((1, 1, 3, 2), 7, np.uint32)
    with pytest.raises(BindingError, match="OutputIndexTensor is sharing memory with OutputValueTensor"):
        compile_operator(desc)(input_tensor=ROWS.astype(np.uint32), output_value_tensor=both, output_index_tensor=both)
    assert (both == 7).all()


def test_an_output_over_an_input_is_refused_unless_it_is_in_place():
    op, call = compiled("scatter_nd")
    inputs, expected = call(np.random.default_rng(8))
    room = np.zeros(12, np.float32)
    room[:8] = inputs["input_tensor"]
    inputs["input_tensor"] = room[:8].reshape(1, 8)
    before = room.copy()
    with pytest.raises(BindingError, match="OutputTensor is sharing memory with InputTensor"):
        op(**inputs, output_tensor=room[4:].reshape(1, 8))
    np.testing.assert_array_equal(room, before)
    check(op(**inputs, output_tensor=room[:8].reshape(1, 8)), expected)
    check(room[np.newaxis, :8], expected)


def test_an_index_out_of_range_is_refused_before_anything_is_written():
    op, call = compiled("scatter_nd")
    inputs, expected = call(np.random.default_rng(9))
    out = np.full((1, 8), 7, np.float32)
    good = inputs["indices_tensor"].copy()
    inputs["indices_tensor"][2] = 8
    with pytest.raises(IndexOutOfRangeError, match=r"DML_OPERATOR_SCATTER_ND: IndicesTensor\[2, 0\] is 8;"):
        op(**inputs, output_tensor=out)
    assert (out == 7).all()
    inputs["indices_tensor"][...] = good
    check(op(**inputs, output_tensor=out), expected)


@pytest.mark.parametrize("name", ["a_scale_tensor", "b_scale_tensor", "output_scale_tensor"])
@pytest.mark.parametrize("scale", [0, -1, np.inf, np.nan])
def test_bad_scales_are_refused(name, scale):
    op, call = compiled("quantized_matmul")
    inputs, expected = call(np.random.default_rng(10))
    good = inputs[name].copy()
    inputs[name][..., -1] = scale
    out = np.full((1, 2, 2, 4), 7, np.int8)
    field = {"a": "AScale", "b": "BScale", "o": "OutputScale"}[name[0]]
    with pytest.raises(
        DmlError, match=rf"DML_OPERATOR_QUANTIZED_LINEAR_MATRIX_MULTIPLY: {field}Tensor.* is {float(scale)};"
    ):
        op(**inputs, output_tensor=out)
    assert (out == 7).all()
    inputs[name][...] = good
    check(op(**inputs, output_tensor=out), expected)


def test_an_owned_matrix_is_that_of_the_last_initialization():
    op = compile_operator(quantized_desc(b_tensor=tensor("INT8", 1, 2, 3, 4, flags=OWNED)))
    for seed in (12, 13):
        inputs, expected = quantized(np.random.default_rng(seed))
        op.initialize(b_tensor=inputs.pop("b_tensor"))
        for _ in range(2):
            check(op(**inputs), expected)


def test_a_matrix_that_saturates_may_follow_one_that_does_not():
    """What is known of a matrix's bytes is known of that matrix alone."""
    rows = [row for row in registry.available("quantized_matmul", "dot") if row.has_forms and not row.is_skinny]
    op = compile_operator(quantized_desc(b_tensor=tensor("INT8", 1, 2, 3, 4, flags=OWNED)))
    one = np.ones((1, 1, 1, 1), np.float32)
    given = {"a_tensor": np.full((1, 2, 2, 3), 255, np.uint8), "output_scale_tensor": np.float32(1000) * one}
    given |= {"a_scale_tensor": np.ones((1, 1, 2, 1), np.float32), "b_scale_tensor": np.ones((1, 1, 1, 4), np.float32)}
    for row in rows or pytest.skip("no kernel here saturates"):
        with use_budget(1, kernel=row.name):
            for number in (0, 127):
                op.initialize(b_tensor=np.full((1, 2, 3, 4), number, np.int8))
                expected = np.full((1, 2, 2, 4), round(3 * 255 * number / 1000), np.int8)
                np.testing.assert_array_equal(op(**given), expected, strict=True)


@each_case
def test_the_budget_is_that_of_the_call(case):
    op, call = compiled(case)
    inputs, expected = call(np.random.default_rng(14))
    given = {name: np.zeros_like(array) for name, array in expected.items()}
    for threads in (1, 2, 5, 1):
        with use_budget(threads, grain=1):
            check(op(**inputs), expected)
            check(op(**inputs, **given), expected)
    for array in given.values():
        array[...] = 7
    with use_budget(1, kernel="no such"), pytest.raises(LookupError):
        op(**inputs, **given)
    assert all((array == 7).all() for array in given.values())
    check(op(**inputs, **given), expected)


@pytest.mark.parametrize("kernel", ["select_sort", "lockstep"])
def test_a_named_kernel_is_used(kernel, caplog):
    x = np.random.default_rng(15).random((1, 1, 5, 13)).astype(np.float32)
    values = tensor("FLOAT32", 1, 1, 5, 2)
    op = compile_operator(
        top_k1_desc(
            input_tensor=tensor("FLOAT32", *x.shape),
            output_value_tensor=values,
            output_index_tensor=tensor("UINT32", 1, 1, 5, 2),
        )
    )
    with use_budget(1, kernel=kernel), caplog.at_level("DEBUG", "dmlcpu"):
        np.testing.assert_array_equal(op(input_tensor=x).indices, reference.top_k(x, 2).indices)
    assert f"{kernel} (requested)" in caplog.text  # a new plan says so


@each_case
def test_threads_may_call_one_operator_at_the_same_time(case):
    op, call = compiled(case)

    def calls(seed):
        rng = np.random.default_rng(seed)
        for _ in range(200):
            inputs, expected = call(rng)
            check(op(**inputs), expected)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(calls, range(4)))


@pytest.fixture
def on_alarm():
    """Call a function again and again from a signal handler, at any moment of the test that follows."""
    functions = []
    before = signal.signal(signal.SIGALRM, lambda *_: functions[-1]())

    def set_off(function):
        functions.append(function)
        signal.setitimer(signal.ITIMER_REAL, 1e-4, 3e-4)

    yield set_off
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@each_case
@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="the system has no such timer")
def test_a_call_within_a_call_has_workspace_of_its_own(case, on_alarm):
    op, call = compiled(case)
    inputs, expected = call(np.random.default_rng(15))
    others = call(np.random.default_rng(16))
    check(op(**inputs), expected)
    handled = []

    def nested():
        check(op(**others[0]), others[1])
        handled.append(1)

    on_alarm(nested)
    while len(handled) < 20:
        check(op(**inputs), expected)


@each_case
@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="the system has no such timer")
def test_after_an_interrupt_an_operator_goes_on(case, on_alarm):
    during = []  # a call: where an interrupt is expected

    def interrupt():
        if during:
            during.clear()
            raise KeyboardInterrupt

    op, call = compiled(case)
    inputs, expected = call(np.random.default_rng(17))
    on_alarm(interrupt)
    for _ in range(20):
        with pytest.raises(KeyboardInterrupt):  # noqa: PT012
            during.append(1)
            while True:
                op(**inputs)
        check(op(**inputs), expected)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system does not fork")
def test_a_forked_child_calls_what_its_parent_has_called():
    code = """
    import os
    import numpy as np
    from desc_builders import ROWS, check_top_k, top_k1_desc
    from dmlcpu import compile_operator
    from dmlcpu.runtime.threads import use_budget

    op = compile_operator(top_k1_desc())
    with use_budget(2, grain=1):
        check_top_k(op(input_tensor=ROWS))
        child = os.fork()
        check_top_k(op(input_tensor=ROWS.copy()))
    if child == 0:
        os._exit(7)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """
    tests = os.pathsep.join((os.environ.get("PYTHONPATH", ""), os.path.dirname(processes.__file__)))
    assert processes.run(code, PYTHONPATH=tests).split() == ["7"]


@each_case
def test_without_compilation_the_reference_computes(case, monkeypatch):
    op, call = compiled(case)
    inputs, expected = call(np.random.default_rng(16))
    check(op(**inputs), expected)
    monkeypatch.setattr(Workspace, "take", None)  # which kernels need
    with pytest.raises(TypeError, match="'NoneType' object is not callable"):
        op(**inputs)
    monkeypatch.setattr("numba.config.DISABLE_JIT", 1)
    check(op(**inputs), expected)
