from dataclasses import FrozenInstanceError, dataclass

import numpy as np
import pytest

from dmlcpu.common.prepared import ByFunction, Prepared, converting, nothing
from dmlcpu.common.regions import Tensor
from dmlcpu.runtime.memory import Workspace

FLOAT, BYTE = np.dtype(np.float32), np.dtype(np.uint8)
RESULTS = Tensor((2, 3), FLOAT), Tensor((), BYTE)


def by(function, **fields):
    return ByFunction(operator="op", results=RESULTS, kernel="reference", function=function, **fields)


def test_a_function_gets_all_arrays_and_says_what_is_refused():
    given = []
    prepared = by(lambda *arrays: given.append(arrays))
    x, y = np.ones(3), np.zeros(3)
    assert prepared.run(x, None, y) is None
    ((first, absent, last),) = given
    assert first is x
    assert absent is None
    assert last is y
    assert by(lambda *arrays: len(arrays)).run(x, y) == 2
    assert by(nothing).run(x, y) is None


def test_what_a_function_carries_out_is_not_kept():
    assert by(nothing).keep(np.ones(3)) is None


def test_each_result_is_a_new_array_of_its_shape_and_type():
    made = [[make() for make in by(nothing).new] for _ in range(2)]
    for arrays in made:
        assert [(each.shape, each.dtype) for each in arrays] == list(RESULTS)
    assert not any(np.may_share_memory(*pair) for pair in zip(*made, strict=True))


def test_without_a_workspace_a_call_takes_none():
    assert by(nothing).workspace_bytes == 0
    assert by(nothing, workspace=Workspace(1000)).workspace_bytes == 8000
    assert by(nothing, workspace=Workspace(0)).workspace_bytes > 0  # the least that a workspace has


def test_what_all_threads_use_cannot_be_changed():
    for prepared in (by(nothing), converting(by(nothing), [(0, np.copy)])):
        with pytest.raises(FrozenInstanceError):
            prepared.is_single = False


def test_an_operator_says_how_it_runs():
    with pytest.raises(NotImplementedError):
        Prepared(operator="op", results=(), kernel="scan").run()


def test_arrays_are_converted_in_order_and_the_callers_stay_as_they_are():
    given = []
    inner = by(lambda *arrays: given.append(arrays))
    prepared = converting(inner, [(1, lambda b: b + 1), (0, lambda a: a * 10), (1, lambda b: b * 2)])
    a, b, y = np.ones(2), np.ones(2), np.zeros(2)
    for number in (3, 4):  # each call converts the values of that time
        b[...] = number
        assert prepared.run(a, b, y) is None
        converted = given.pop()
        assert [each.tolist() for each in converted[:2]] == [[10, 10], [2 * number + 2] * 2]
        assert converted[2] is y
        assert (a.tolist(), b.tolist()) == ([1, 1], [number] * 2)


def test_what_the_inner_call_refuses_is_refused():
    assert converting(by(lambda *arrays: "refused"), [(0, np.copy)]).run(np.ones(2)) == "refused"


def test_an_error_of_a_converter_leaves_nothing_done():
    done = []
    prepared = converting(by(done.append), [(0, lambda array: array.no_such_attribute)])
    with pytest.raises(AttributeError):
        prepared.run(np.ones(2))
    assert done == []


def test_nothing_to_convert_is_the_same_call():
    inner = by(nothing)
    assert converting(inner, []) is inner


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept(Prepared):
    def run(self, x):
        return None

    def keep(self, x):
        return lambda: True


def test_all_is_that_of_the_inner_call_but_that_it_is_not_kept():
    """A kept call would read the array that was converted once."""
    inner = Kept(operator="op", results=RESULTS, kernel="scan", is_single=False, workspace=Workspace(1000))
    prepared = converting(inner, [(0, np.copy)])
    for name in ("operator", "results", "kernel", "is_single", "workspace", "workspace_bytes"):
        assert getattr(prepared, name) == getattr(inner, name)
    assert inner.keep(np.ones(2)) is not None
    assert prepared.keep(np.ones(2)) is None
