"""What every row of the table of operators has to keep."""

import ast
import copy
import functools
import inspect
import itertools
import json
import pickle
from dataclasses import FrozenInstanceError, replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from processes import run
from samples import as_tuple, assert_same_bits, calls_of_examples
from sources import arguments_of, in_blocks

import dmlcpu
from dmlcpu.directml.base import fields_of
from dmlcpu.directml.enums import FeatureLevel, full_name
from dmlcpu.directml.tensor import TensorDesc
from dmlcpu.errors import UnsupportedError
from dmlcpu.kernels import registry
from dmlcpu.operators import OPERATORS, OperatorType, table
from dmlcpu.runtime.threads import use_budget

ROOT = Path(__file__).parents[2]
ROWS = list(OPERATORS.values())
DESCS = {operator_type: row for row in ROWS for operator_type in row.descs}


def described(operator_type):
    """Return the desc of a type that its operator's examples have, and the inputs to bind."""
    found = [pair for pair in DESCS[operator_type].desc_examples() if pair[0].OPERATOR_TYPE is operator_type]
    assert len(found) == 1
    return found[0]


def test_to_list_the_operators_imports_none():
    code = """
    import sys
    from dmlcpu.operators import OPERATORS
    import dmlcpu
    names = dmlcpu.__all__
    assert set(OPERATORS) < set(names)
    heavy = ("numpy", "numba", *[f"dmlcpu.operators.{name}" for name in OPERATORS])
    print(*(module for module in sys.modules if module.startswith(heavy)))
    """
    assert run(code).strip() == ""


@pytest.mark.parametrize("name", OPERATORS)
def test_a_room_is_not_shadowed_by_its_function(name):
    namespace = {}
    exec(f"import dmlcpu.operators.{name}.function\nfrom dmlcpu.operators import {name} as room", namespace)
    assert isinstance(namespace["room"], ModuleType)
    assert getattr(dmlcpu, name) is OPERATORS[name].function is namespace["room"].function.__dict__[name]


def test_type_checkers_are_told_the_public_names_of_the_table():
    """They cannot read the rows, so that `table` imports what the rows name, for them alone."""
    tree = ast.parse(Path(table.__file__).read_text("utf-8"))
    (block,) = [node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    *imports, names = block.body
    told = {alias.name: node.module for node in imports for alias in node.names}
    assert told == {name: home for row in ROWS for name, home in row.homes().items()}
    assert set(ast.literal_eval(names.value)) == set(told)  # or checkers would see more of the module


def test_each_operator_type_is_in_one_row():
    types = [operator_type for row in ROWS for operator_type in row.descs]
    assert sorted(types) == sorted(OperatorType)


@pytest.mark.parametrize("name", OPERATORS)
def test_the_reference_has_the_signature_of_the_function(name):
    def plain(function):
        parameters = inspect.signature(function).parameters.values()
        return [(p.name, p.kind, p.default) for p in parameters if p.kind is not p.VAR_KEYWORD]

    assert plain(OPERATORS[name].function) == plain(OPERATORS[name].reference)


@pytest.mark.parametrize("name", OPERATORS)
def test_what_is_told_of_a_call_is_true_of_its_results(name):
    row = OPERATORS[name]
    for example in row.examples(row.typical):
        told = row.blocks.estimate(**example.arguments).results
        found = as_tuple(row.function(**example.arguments))
        assert tuple(told) == row.results
        assert list(told.values()) == [(array.shape, array.dtype) for array in found]
        taken = sum(array.nbytes for array in found)
        assert taken < row.blocks.estimate(**example.arguments).memory
        assert row.blocks.estimate(**example.arguments).kernel in {entry.name for entry in registry.available(name)}
        assert row.version >= 1
        assert set(row.blocks.SOURCES) < set(inspect.signature(row.function).parameters)


def test_examples_need_no_more_than_numpy():
    """NumPy knows no bfloat16 by itself."""
    code = """
    import sys
    sys.modules["ml_dtypes"] = None
    from dmlcpu.operators import OPERATORS
    counts = {(name, dtype): len(list(row.examples(dtype))) for name, row in OPERATORS.items() for dtype in row.types}
    print(len(counts), [each for each, count in counts.items() if not count])
    """
    assert run(code).split() == [str(sum(len(row.types) for row in ROWS)), "[]"]


@pytest.mark.parametrize("name", OPERATORS)
def test_a_workload_takes_what_it_says(name):
    nbytes = 1 << 20
    arguments, limit, amount = OPERATORS[name].workload(nbytes)
    found = as_tuple(OPERATORS[name].function(**arguments))
    if limit == "multiply":
        rows, depth = next(iter(arguments.values())).shape
        assert amount == rows * depth * arguments["b"].shape[-1]
        return
    assert limit in ("read", "copy")
    moved = sum(array.nbytes for array in (*arguments.values(), *found) if isinstance(array, np.ndarray))
    assert 0.9 * moved < amount < 1.1 * moved
    assert 0.9 * nbytes < moved < 1.2 * nbytes


@pytest.mark.parametrize("name", OPERATORS)
def test_every_operator_has_all_its_files(name):
    row = OPERATORS[name]
    parts = ("__init__", "function", *(["descriptor"] if row.descs else []), "examples")
    files = [f"dmlcpu/operators/{name}/{part}.py" for part in parts]
    files.append(f"dmlcpu/{row.family or f'operators/{name}'}/blocks.py")
    files += [f"docs/operators/{name}.rst", f"tests/operators/{name}/test_{name}.py"]
    assert [file for file in files if not (ROOT / file).exists()] == []


@pytest.mark.parametrize(("name", "dtype"), [(row.name, dtype) for row in ROWS for dtype in row.types])
def test_every_example_has_the_bits_of_the_reference(name, dtype):
    calls = calls_of_examples(name, dtype)
    assert calls[0][1] is None
    for number, (call, kernel) in enumerate(calls):
        with use_budget(2, grain=1, kernel=kernel):
            assert_same_bits(call.run(), call.expected(), f"example {number} of {dtype}, {kernel}")


@pytest.mark.parametrize(("name", "dtype"), [(row.name, dtype) for row in ROWS for dtype in row.types])
def test_every_example_in_blocks_has_the_bits_of_the_reference(name, dtype):
    """From arrays that are read a region at a time, within so little memory that most are cut."""
    for number, (call, _) in enumerate(calls_of_examples(name, dtype)):
        found = in_blocks(name, arguments_of(call), memory=1 << 16)
        assert_same_bits(found, call.expected(), f"example {number} of {dtype}")


@pytest.mark.parametrize("name", OPERATORS)
def test_calls_that_repeat_are_planned_once_and_so_are_bound_ones(name):
    row = OPERATORS[name]
    arguments = next(row.examples(row.typical)).arguments
    expected = as_tuple(row.function(**arguments))
    prepare = row.calls.prepare
    misses = prepare.cache_info().misses
    for again in (functools.partial(row.function, **arguments), dmlcpu.bind(row.function, **arguments)):
        assert_same_bits(as_tuple(again()), expected)
    assert prepare.cache_info().misses == misses


def type_options():
    """Yield operators and the options that are types of elements."""
    for row in ROWS:
        for name in {"out_dtype", "index_dtype"} & inspect.signature(row.function).parameters.keys():
            yield row.name, name


@pytest.mark.parametrize(("name", "option"), list(type_options()))
def test_a_number_stands_for_its_own_type_though_others_equal_it(name, option):
    function = OPERATORS[name].function
    arguments = next(OPERATORS[name].examples(OPERATORS[name].typical)).arguments

    def types(given):
        try:
            return [each.dtype for each in as_tuple(function(**{**arguments, option: given}))]
        except UnsupportedError as error:
            return str(error)

    for dtype in map(np.dtype, "bBhHiIlLefd"):
        assert types(dtype.type(1)) == types(dtype)
    for number in (1, True, 1.0):
        with pytest.raises(TypeError, match=f"{name}: {option} is {number}; allowed: "):
            types(number)


@pytest.mark.parametrize("name", [name for name in OPERATORS if registry.available(name)])
def test_a_kernel_that_is_not_for_the_call_is_refused(name):
    example = next(OPERATORS[name].examples(OPERATORS[name].typical))
    with use_budget(2, kernel="nosuch"), pytest.raises(LookupError, match="kernel nosuch"):
        OPERATORS[name].function(**example.arguments)


@pytest.mark.parametrize("operator_type", DESCS, ids=lambda each: each.name)
def test_the_descs_example_gives_what_the_function_gives(operator_type):
    desc, inputs = described(operator_type)
    assert type(desc) is getattr(dmlcpu, DESCS[operator_type].descs[operator_type])
    tensors = list(desc.tensors())
    owned = {field.name: inputs.pop(field.name) for field, tensor in tensors if tensor.flags}
    compiled = dmlcpu.compile_operator(desc)
    if owned:
        compiled.initialize(**owned)
    row = DESCS[operator_type]
    expected = as_tuple(row.function(**next(row.examples(row.typical)).arguments))
    in_own_memory = {name: array.copy() for name, array in inputs.items()}  # which has a way of its own
    in_own_memory |= {field.name: np.empty(tensor.sizes, tensor.dtype) for field, tensor in tensors if field.output}
    for given in (inputs, in_own_memory):
        for mine, right in zip(as_tuple(compiled(**given)), expected, strict=True):
            assert mine.tolist() == right.reshape(mine.shape).tolist()


def test_rows_are_frozen():
    for row in ROWS:
        with pytest.raises(FrozenInstanceError):
            row.version = row.version


@pytest.mark.parametrize("operator_type", DESCS, ids=lambda each: each.name)
def test_descs_are_frozen_slotted_hashable_values(operator_type):
    (desc, _), (again, _) = described(operator_type), described(operator_type)
    for field, value in desc.tensors():
        with pytest.raises(FrozenInstanceError):
            setattr(desc, field.name.partition("[")[0], value)
    assert not hasattr(desc, "__dict__")
    assert desc == again
    assert hash(desc) == hash(again)
    assert pickle.loads(pickle.dumps(desc)) == desc
    with pytest.raises(TypeError):
        type(desc)(desc.to_dict())  # nothing goes by position
    assert sum(desc == described(other)[0] for other in DESCS) == 1


@pytest.mark.parametrize("operator_type", DESCS, ids=lambda each: each.name)
def test_the_repr_of_descs_is_the_python_that_makes_them(operator_type):
    desc, _ = described(operator_type)
    assert eval(repr(desc), {name: getattr(dmlcpu, name) for name in dmlcpu.__all__}) == desc
    assert "<" not in repr(desc)  # enumerations by name
    absent = [field.name for field in fields_of(type(desc)) if field.optional and getattr(desc, field.name) is None]
    assert not [name for name in [*absent, "total_tensor_size_in_bytes", "strides=None"] if name in repr(desc)]


@pytest.mark.parametrize("operator_type", DESCS, ids=lambda each: each.name)
def test_directmls_spelling_gets_a_hint(operator_type):
    desc, _ = described(operator_type)
    for field in fields_of(type(desc)):
        with pytest.raises(TypeError) as caught:
            replace(desc, **{field.dml_name: None})
        assert str(caught.value) == (
            f"{type(desc).__name__}: {field.dml_name} is DirectML's spelling; allowed: {field.name} here"
        )


@pytest.mark.parametrize("operator_type", DESCS, ids=lambda each: each.name)
def test_compiled_operators_are_copied_and_pickled(operator_type):
    desc, inputs = described(operator_type)
    compiled = dmlcpu.compile_operator(desc)
    owned = {field.name: inputs.pop(field.name) for field, tensor in desc.tensors() if tensor.flags}
    compiled.initialize(**owned)
    expected = as_tuple(compiled(**inputs))
    for again in (copy.copy(compiled), copy.deepcopy(compiled), pickle.loads(pickle.dumps(compiled))):
        assert again.desc == desc
        for mine, right in zip(as_tuple(again(**inputs)), expected, strict=True):
            np.testing.assert_array_equal(mine, right)


@pytest.mark.parametrize("operator_type", DESCS, ids=lambda each: each.name)
def test_descs_go_through_json(operator_type):
    desc, _ = described(operator_type)
    d = desc.to_dict()
    assert d["type"] == desc.operator == f"DML_OPERATOR_{operator_type.name}"
    again = dmlcpu.operator_desc_from_dict(json.loads(json.dumps(d)))
    assert again == desc
    assert again.to_dict() == d


@pytest.mark.parametrize("operator_type", DESCS, ids=lambda each: each.name)
def test_feature_levels(operator_type):
    """Rows go up, each takes what the ones before it do, and name the desc's tensors; before them there is nothing."""
    desc, _ = described(operator_type)
    rows = desc.FEATURE_LEVELS
    assert [row.since for row in rows] == sorted({row.since for row in rows})
    names = {field.dml_name for field in fields_of(type(desc)) if field.kind is TensorDesc}
    for row in rows:
        assert names == {name.partition("[")[0] for name in row.tensors}
    for before, after in itertools.pairwise(rows):
        for name in before.tensors:
            assert set(before.allowed(name).dimensions) <= set(after.allowed(name).dimensions)
            assert set(before.allowed(name).types) <= set(after.allowed(name).types)
    for level in (level for level in FeatureLevel if level < rows[0].since):
        with pytest.raises(UnsupportedError) as caught:
            dmlcpu.compile_operator(desc, feature_level=level)
        assert str(caught.value) == (
            f"{desc.operator}: FeatureLevel is {full_name(level)}; "
            f"allowed: {full_name(rows[0].since)} or later (it introduced the operator)"
        )


@pytest.mark.parametrize("operator_type", DESCS, ids=lambda each: each.name)
def test_the_examples_desc_has_all_its_inputs(operator_type):
    desc, inputs = described(operator_type)
    names = {field.name: field.output for field, _ in desc.tensors()}
    assert {name for name, output in names.items() if not output} == set(inputs)
    assert {name for name, output in names.items() if output} == {name for name in desc.OUTPUTS if name in names}
    assert all(type(array) is np.ndarray for array in inputs.values())
