"""The way of most calls of compiled operators: what takes it, what it falls back from, and the same results."""

import copy
import os
import textwrap
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import processes
import pytest
from desc_builders import OWNED, ROWS, check_top_k, outputs, quantized_desc, small_scatter_desc, tensor, top_k1_desc

from dmlcpu import compile_operator, reference
from dmlcpu.directml import usual
from dmlcpu.errors import BindingError, DmlError, IndexOutOfRangeError
from dmlcpu.runtime.threads import use_budget


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    """Let the first call take this way."""
    monkeypatch.setattr(usual, "_FIRST", 0)
    monkeypatch.setattr(usual, "_NEXT", 0)


def refuse(*args):
    raise AssertionError("this way is too long")


def shorten(op, *, kept=True):
    """Let an operator refuse the long way; kept: also plans that are looked up."""
    op._checked = refuse
    if kept:
        op._usual._packed = op._usual._packed._replace(run=refuse)
    return op


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


CASES = {
    "top_k": (top_k1_desc, top_k),
    "scatter": (small_scatter_desc, scatter),
    "product": (quantized_desc, quantized),
}
each_case = pytest.mark.parametrize("case", CASES)


def compiled(case):
    return compile_operator(CASES[case][0]()), CASES[case][1]


def check(result, expected):
    results = result if isinstance(result, tuple) else (result,)
    for found, wanted in zip(results, expected.values(), strict=True):
        assert found.dtype == wanted.dtype
        np.testing.assert_array_equal(found, wanted)


@each_case
def test_calls_are_kept_and_told_where_tensors_lie(case):
    op, call = compiled(case)
    shorten(op)
    rng = np.random.default_rng(5)
    for _ in range(3):
        inputs, expected = call(rng)
        check(op(**inputs), expected)
        given = {name: np.zeros_like(array) for name, array in expected.items()}
        check(op(**inputs, **given), expected)
        check(tuple(given.values()), expected)
        views = {name: np.concatenate([array, array])[len(array) :] for name, array in inputs.items()}
        check(op(**views, **given), expected)
        name, *_ = given
        result = op(**inputs, **{name: given[name]})  # some are new
        check(result, expected)
        assert (result[0] if isinstance(result, tuple) else result) is given[name]


FORMS = {
    "strided": lambda x: np.repeat(x, 2, axis=-1)[..., ::2],
    "read-only": lambda x: np.frombuffer(x.tobytes(), x.dtype).reshape(x.shape),
    "misaligned": lambda x: np.frombuffer(bytearray(b"?" + x.tobytes()), np.uint8)[1:].view(x.dtype).reshape(x.shape),
    "buffer": lambda x: x.reshape(-1).copy(),
    "bytes": lambda x: x.tobytes(),
    "fortran": np.asfortranarray,
    "subclass": lambda x: x.view(type("Subclass", (np.ndarray,), {})),
    "type with metadata": lambda x: x.astype(np.dtype(x.dtype, metadata={"unit": "m"})),
}


def is_usual(x):
    """Return whether an array is packed, whatever form it was given."""
    return type(x) is np.ndarray and x.dtype.metadata is None and x.ndim > 1 and x.flags.carray


@each_case
@pytest.mark.parametrize("form", FORMS)
def test_other_tensors_take_the_long_way(case, form, monkeypatch):
    op, call = compiled(case)
    inputs, expected = call(np.random.default_rng(6))
    ways, checked = [], op._checked
    monkeypatch.setattr(op, "_checked", lambda *args: ways.append("long") or checked(*args))
    for name in inputs:
        other = {**inputs, name: FORMS[form](inputs[name])}
        ways.clear()
        check(op(**other), expected)
        assert ways == ([] if is_usual(other[name]) else ["long"])
        given = {name: np.zeros_like(array) for name, array in expected.items()}
        check(op(**other, **given), expected)
        check(tuple(given.values()), expected)


@each_case
def test_refusals_are_those_of_the_long_way(case, monkeypatch):
    op, call = compiled(case)
    inputs, expected = call(np.random.default_rng(7))
    name, *_ = inputs
    x = inputs[name]
    out_name, *_ = expected
    out = np.full_like(expected[out_name], 7)
    bad = [
        {**inputs, "other_tensor": x},
        {key: value for key, value in inputs.items() if key != name},
        {**inputs, name: x[..., 1:]},
        {**inputs, name: x.astype(np.int16)},
        {**inputs, name: np.ma.masked_array(x)},
        {**inputs, name: x.tolist()},
        {**inputs, out_name: np.frombuffer(out.tobytes(), out.dtype).reshape(out.shape)},
    ]

    def refusals():
        found = []
        for given in bad:
            with pytest.raises((DmlError, TypeError)) as refused:
                op(**{out_name: out, **given})
            found.append(str(refused.value))
        return found

    here = refusals()
    monkeypatch.setattr(op, "_usual", None)
    assert here == refusals()
    assert (out == 7).all()


def test_an_output_over_an_input_is_refused_unless_it_is_in_place():
    op, call = compiled("scatter")
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
    op, call = compiled("scatter")
    inputs, expected = call(np.random.default_rng(9))
    out = np.full((1, 8), 7, np.float32)
    good = inputs["indices_tensor"].copy()
    inputs["indices_tensor"][2] = 8
    with pytest.raises(IndexOutOfRangeError, match=r"DML_OPERATOR_SCATTER_ND: IndicesTensor\[2, 0\] is 8;"):
        op(**inputs, output_tensor=out)
    assert (out == 7).all()
    inputs["indices_tensor"][...] = good
    check(shorten(op)(**inputs, output_tensor=out), expected)


@pytest.mark.parametrize("name", ["a_scale_tensor", "b_scale_tensor", "output_scale_tensor"])
@pytest.mark.parametrize("scale", [0, -1, np.inf, np.nan])
def test_bad_scales_are_refused(name, scale):
    op, call = compiled("product")
    inputs, _ = call(np.random.default_rng(10))
    inputs[name][..., -1] = scale
    out = np.full((1, 2, 2, 4), 7, np.int8)
    with pytest.raises(
        DmlError, match=f"DML_OPERATOR_QUANTIZED_LINEAR_MATRIX_MULTIPLY: {name[0].upper()}.*ScaleTensor"
    ):
        op(**inputs, output_tensor=out)
    assert (out == 7).all()


def test_an_owned_matrix_is_that_of_the_last_initialization():
    op = compile_operator(quantized_desc(b_tensor=tensor("INT8", 1, 2, 3, 4, flags=OWNED)))
    for seed in (12, 13):
        inputs, expected = quantized(np.random.default_rng(seed))
        op.initialize(b_tensor=inputs.pop("b_tensor"))
        shorten(op)
        for _ in range(2):
            check(op(**inputs), expected)


@each_case
def test_the_budget_is_that_of_the_call(case):
    op, call = compiled(case)
    inputs, expected = call(np.random.default_rng(14))
    for threads in (1, 2, 1):
        with use_budget(threads, grain=1):
            check(op(**inputs), expected)
    with use_budget(1, kernel="no such"), pytest.raises(LookupError):
        op(**inputs)
    shorten(op, kept=False)
    with use_budget(2, grain=1):
        check(op(**inputs), expected)
    check(shorten(op)(**inputs), expected)


def test_a_named_kernel_is_used():
    op = shorten(compile_operator(top_k1_desc()))
    for kernel in ("select_sort", "lockstep"):
        with use_budget(1, kernel=kernel):
            check_top_k(op(input_tensor=ROWS.copy()))


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


@each_case
def test_a_call_within_a_call_takes_the_long_way(case):
    """As that of a signal handler."""
    op, call = compiled(case)
    inputs, expected = call(np.random.default_rng(15))
    check(op(**inputs), expected)
    with op._usual._ready.free:
        check(op(**inputs), expected)
        with pytest.raises(AssertionError, match="too long"):
            shorten(op)(**inputs)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system does not fork")
def test_a_forked_child_is_not_kept_from_this_way():
    code = """
    import os
    import numpy as np
    from desc_builders import ROWS, top_k1_desc
    from dmlcpu import compile_operator
    from dmlcpu.directml import usual

    usual._FIRST = 0
    op = compile_operator(top_k1_desc())
    op(input_tensor=ROWS.copy())
    with op._usual._ready.free:  # as if another thread called meanwhile
        child = os.fork()
    if child == 0:
        op._checked = None  # the long way fails
        op(input_tensor=ROWS.copy())
        os._exit(7)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """
    tests = os.path.dirname(processes.__file__)
    assert processes.run(f"import sys; sys.path.append({tests!r})\n{textwrap.dedent(code)}").split() == ["7"]


class Interrupted:
    """A lock that a caller has taken, but is interrupted before it knows."""

    def acquire(self, _blocking):
        raise KeyboardInterrupt


@each_case
def test_after_an_interrupt_calls_are_kept_again(case):
    op, call = compiled(case)
    inputs, expected = call(np.random.default_rng(17))
    check(op(**inputs), expected)
    shorten(op)._usual._ready = op._usual._ready._replace(free=Interrupted())
    with pytest.raises(KeyboardInterrupt):
        op(**inputs)
    check(op(**inputs), expected)


@each_case
def test_without_compilation_the_reference_computes(case, monkeypatch):
    op, call = compiled(case)
    inputs, expected = call(np.random.default_rng(16))
    check(op(**inputs), expected)
    for module in ("directml.usual", "directml.compiled", "operators.top_k.function", "operators.scatter_nd.function"):
        monkeypatch.setattr(f"dmlcpu.{module}.can_compile", lambda: False)
    monkeypatch.setattr("dmlcpu.products.operands.can_compile", lambda: False)
    monkeypatch.setattr("dmlcpu.directml.usual.Rows.fit", refuse)
    check(op(**inputs), expected)


def test_an_operator_whose_kernels_do_not_take_a_tensor_still_asks_for_it(monkeypatch):
    op, call = compiled("scatter")
    run, (inputs, _) = op._run, call(np.random.default_rng(18))
    words = {name: word for name, word in run.packed.words.items() if name != "updates_tensor"}
    fewer = run._replace(packed=run.packed._replace(words=words))
    monkeypatch.setattr(type(op.desc), "_make_run", lambda *_: fewer)
    del inputs["updates_tensor"]
    with pytest.raises(BindingError, match="UpdatesTensor is missing"):
        compile_operator(op.desc)(**inputs)


def test_large_tensors_are_not_kept(monkeypatch):
    monkeypatch.setattr(usual, "_MOST_KEPT", 50)
    op = shorten(compile_operator(top_k1_desc()), kept=False)
    values, indices = outputs()
    check_top_k(op(input_tensor=ROWS.copy(), output_value_tensor=values, output_index_tensor=indices))
    check_top_k(op(input_tensor=ROWS.copy()))
    assert op._usual._ready.again is None


def test_the_first_calls_and_those_after_other_tensors_take_the_long_way(monkeypatch):
    monkeypatch.setattr(usual, "_FIRST", 3)
    monkeypatch.setattr(usual, "_NEXT", 2)
    op = compile_operator(top_k1_desc())
    ways, checked = [], op._checked
    monkeypatch.setattr(op, "_checked", lambda *args: ways.append("long") or checked(*args))
    for form in [np.copy] * 4 + [np.asfortranarray] + [np.copy] * 3:
        before = len(ways)
        check_top_k(op(input_tensor=form(ROWS)))
        if len(ways) == before:
            ways.append("short")
    assert ways == ["long"] * 3 + ["short"] + ["long"] * 3 + ["short"]


def test_a_copy_of_an_operator_is_one_of_its_own():
    op = compile_operator(top_k1_desc())
    check_top_k(op(input_tensor=ROWS.copy()))
    other = copy.deepcopy(op)
    check_top_k(other(input_tensor=ROWS.copy()))
    assert other._usual is not op._usual
