"""The benchmarks that read the table of operators: overhead, and the first result."""

import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from asv_files import as_arrays, check, expected, load

import dmlcpu
from dmlcpu import AxisDirection, TopK1OperatorDesc, reference
from dmlcpu.directml.operator_type import OperatorType
from dmlcpu.directml.tensor import TensorDesc
from dmlcpu.operators.table import OPERATORS, Example, Operator


def first_example(operator):
    """Return the arguments of an operator's first example, and the reference's results."""
    arguments = next(operator.examples(operator.typical)).arguments
    return arguments, as_arrays(operator.reference(**arguments))


@pytest.mark.parametrize("cell", load("benchmarks.overhead").Tiny.params)
def test_overhead(cell):
    implementation, _, operator = cell.partition(": ")
    benchmark, case = load("benchmarks.overhead").Tiny(), load("benchmarks.common").TINY.get(operator)
    benchmark.setup(cell)
    result = benchmark.time_1000_calls(cell)
    if case is not None and implementation != "dmlcpu compiled":
        check(implementation, case, result)
        return
    _, wanted = first_example(OPERATORS[operator])
    for ours, theirs in zip(as_arrays(result), wanted, strict=True):
        # A desc may give the same elements more dimensions, or indices another type.
        np.testing.assert_array_equal(ours.reshape(theirs.shape), theirs.astype(ours.dtype), strict=True)


def test_compiled_calls_are_bound_the_short_way(monkeypatch):
    """Tensors that own their memory need not be compared with one another, which takes longer."""
    call = load("benchmarks.overhead").contender("dmlcpu compiled", "top_k")
    monkeypatch.setattr("dmlcpu.directml.compiled.check_apart", None)
    first, second = call(), call()
    assert first.values is second.values


@pytest.mark.parametrize("operator", load("benchmarks.common").TINY)
def test_tiny_cases_have_the_sizes_of_first_examples(operator):
    """Then the compiled call is as large as the calls beside it."""
    case = load("benchmarks.common").TINY[operator]
    arguments, wanted = first_example(OPERATORS[operator])
    arrays = {array.shape for array in as_arrays(list(arguments.values())) if array.ndim}
    assert arrays
    assert arrays <= {array.shape for array in as_arrays(case.inputs())}
    assert [array.shape for array in wanted] == [array.shape for array in expected("dmlcpu", case)]


def result_of(code, package):
    """Run code with another package in the place of dmlcpu, and return the value of its last line."""
    names = {}
    *preparation, last = code.splitlines()
    exec("\n".join(preparation), names)
    return eval(last, {**names, "dmlcpu": package})


@pytest.mark.parametrize("operator", OPERATORS)
def test_first_results(operator):
    """asv runs the code in a new process; here it is enough that it is right."""
    code = load("benchmarks.startup").FirstResult().timeraw_first_result(operator)
    assert code.splitlines()[:-1] == ["import numpy as np", "import dmlcpu", "import pickle"]
    assert "\\" not in code  # between asv's quotes it would not remain one
    _, wanted = first_example(OPERATORS[operator])
    for package in (dmlcpu, reference):
        for found, array in zip(as_arrays(result_of(code, package)), wanted, strict=True):
            np.testing.assert_array_equal(found, array, strict=True)


def test_imports():
    (packages,) = load("benchmarks.startup").Import.params
    for package in packages:
        assert load("benchmarks.startup").Import().timeraw_import(package) == f"import {package}"


@pytest.fixture
def greatest(monkeypatch):
    """Add an operator to the table, whose desc is that of top_k with k = 1; return its function."""
    x = np.array([[3, 9, 5]], np.float32)

    def greatest(x, *, axis, out=None):
        return np.argmax(x, axis, out=out)

    def desc_examples():
        fields = {"input_tensor": TensorDesc.of(x), "output_value_tensor": TensorDesc.of(x[:, :1]), "axis": 1, "k": 1}
        indices = TensorDesc.of(np.empty((1, 1), np.uint32))
        desc = TopK1OperatorDesc(**fields, output_index_tensor=indices, axis_direction=AxisDirection.DECREASING)
        yield desc, {"input_tensor": x}

    parts = {
        "function": {"greatest": greatest},
        "examples": {"examples": lambda dtype: iter([Example({"x": x, "axis": 1})]), "desc_examples": desc_examples},
    }
    for part, contents in parts.items():
        module = ModuleType(part)
        vars(module).update(contents)
        monkeypatch.setitem(sys.modules, f"dmlcpu.operators.greatest.{part}", module)
    monkeypatch.setitem(
        OPERATORS, "greatest", Operator("greatest", {OperatorType.TOP_K1: "TopK1OperatorDesc"}, ("float32",))
    )
    for name in ("overhead", "startup"):
        monkeypatch.delitem(sys.modules, load(f"benchmarks.{name}").__name__)  # the next to load it sees the table anew
    return greatest


def test_new_operator_is_timed(greatest):
    overhead = load("benchmarks.overhead")
    assert [cell for cell in overhead.Tiny.params if "greatest" in cell] == [
        "dmlcpu bound: greatest",
        "dmlcpu compiled: greatest",
        "dmlcpu: greatest",
    ]
    calls = [overhead.contender(name, "greatest") for name in ("dmlcpu", "dmlcpu compiled")]
    (new, other), (compiled, bound) = [(call(), call()) for call in calls]
    assert (new.tolist(), compiled.indices.tolist()) == ([1], [[1]])
    assert new is not other
    assert compiled.indices is bound.indices


def test_new_operator_has_a_first_result(greatest):
    startup = load("benchmarks.startup")
    assert startup.FirstResult.params == ([*OPERATORS],)
    code = startup.FirstResult().timeraw_first_result("greatest")
    assert result_of(code, SimpleNamespace(greatest=greatest)).tolist() == [1]
