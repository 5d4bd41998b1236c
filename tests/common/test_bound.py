from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from dmlcpu.common.bound import BoundOperator, are_used, own_view
from dmlcpu.common.prepared import Prepared
from dmlcpu.runtime.threads import use_budget

X = np.arange(12.0)
RECORDS = np.zeros(4, [("x", "<f4"), ("y", "<f4")])


@pytest.mark.parametrize(
    "used",
    [
        X,
        X[:],
        X.view(np.uint64),
        X.reshape(3, 4).T,
        X[::-1],
        X[:1],  # a number that is repeated
        np.frombuffer(X, np.uint8),
        np.broadcast_to(X, (2, 12)),
    ],
)
def test_an_array_is_used_if_a_kernel_reads_it_or_a_view(used):
    for nested in ([used], (None, (7, [used])), [X.copy(), used]):
        assert are_used([X], nested)


@pytest.mark.parametrize("used", [[], [None, 7], [X.copy()], [RECORDS["x"], (X[::2].copy(),)]])
def test_an_array_is_not_used_if_a_kernel_reads_no_array_or_a_copy(used):
    assert not are_used([X], used)


@pytest.mark.parametrize(("x", "y"), [(X, X), (X, X[:5]), (X[::2], X[1::2]), (RECORDS["x"], RECORDS["y"])], ids=str)
def test_of_arrays_that_share_memory_each_has_to_be_used(x, y):
    assert are_used([x, y], [x, y])
    assert are_used([x, y], [[y[:]], (x[:],)])
    for used in ([x], [x.copy(), y], [x, [y.copy()]], [x.copy(), y.copy()]):
        assert not are_used([x, y], used)


def test_what_no_array_is_given_for_may_be_used_too():
    assert are_used([], [])
    assert are_used([], [X])
    assert are_used([X], [np.ones(3), X])


def test_an_empty_array_has_no_values_to_read():
    assert are_used([X[:0]], [])
    assert are_used([X[:0], X], [X])
    assert not are_used([X[:0], X], [X[:0]])


@pytest.mark.parametrize("make", [np.copy, lambda x: x.copy().view(type("Subclass", (np.ndarray,), {}))])
def test_changes_of_an_array_object_do_not_reach_its_view(make):
    array = make(X)
    view = own_view(array)
    assert type(view) is np.ndarray
    array.shape, array.flags.writeable = (3, 4), False
    assert view.shape == (12,)
    view[...] = 7
    assert (array == 7).all()


@pytest.mark.parametrize("value", [None, 7, b"bytes", [1, 2], np.ma.masked_array(X)])
def test_other_values_stay_as_they_are(value):
    assert own_view(value) is value


@dataclass(frozen=True, slots=True, kw_only=True)
class Noted(Prepared):
    """A call that notes how it is made."""

    notes: list[Any]
    kept: Any  # what a kept call does
    refused: Any

    def run(self, *arrays):
        self.notes.append("run")
        return self.refused

    def keep(self, *arrays):
        self.notes.append("keep")
        return self.kept and (lambda: self.notes.append("kept") or self.kept())


def noted(kept=None, refused=None, **fields):
    """Return a bound operator, and the notes of how it is called; kept: what its kept call does."""
    notes = []

    def prepare(budget):
        notes.append(budget.threads)
        is_single = budget.threads == 1
        return Noted(
            operator="op", results=(), kernel="scan", is_single=is_single, notes=notes, kept=kept, refused=refused
        )

    def whole():
        notes.append("whole")

    fields = {"prepare": prepare, **fields}
    with use_budget(1):
        return BoundOperator("op", "outputs", whole, [], **fields), notes


def taken(notes):
    """Return the notes, and forget them."""
    mine = notes.copy()
    notes.clear()
    return mine


def test_a_kept_call_is_made_again_and_again():
    run, notes = noted(lambda: True)
    assert taken(notes) == [1, "keep"]
    with use_budget(1):
        assert run() == run() == run.outputs == "outputs"
    assert notes == ["kept", "kept"]


def test_what_is_not_kept_is_planned_for_each_call():
    run, notes = noted()
    assert taken(notes) == [1, "keep"]
    with use_budget(1):
        run()
        assert taken(notes) == [1, "run"]
    with use_budget(3):
        run()
        assert [each for each in notes if each in ("run", "keep", "whole")] == ["keep", "run"]
        assert set(notes) - {"keep", "run"} == {3}


@pytest.mark.parametrize(("kept", "first"), [(lambda: False, ["kept"]), (None, [])])
def test_what_refuses_a_value_makes_the_call_whole_which_raises_the_error(kept, first):
    run, notes = noted(kept, refused="scale")
    notes.clear()
    with use_budget(1):
        assert run() == "outputs"
    assert [note for note in notes if note != 1] == [*first, "run", "whole"]


def test_without_a_prepared_call_each_is_whole():
    run, notes = noted(lambda: True, prepare=None)
    for threads in (1, 2):
        with use_budget(threads):
            run()
    assert notes == ["whole", "whole"]


def test_another_budget_has_another_kept_call():
    run, notes = noted(lambda: True)
    notes.clear()
    for threads in (1, 2, 2, 1):
        with use_budget(threads):
            run()
    assert notes == ["kept", 2, "keep", "kept", "kept", 1, "keep", "kept"]


def test_a_call_within_a_kept_call_has_workspace_of_its_own():
    """As that of a signal handler."""
    run, notes = noted(lambda: run() == "outputs")
    notes.clear()
    with use_budget(1):
        run()
        assert taken(notes) == ["kept", 1, "run"]
        run()
        assert taken(notes) == ["kept", 1, "run"]


def test_a_call_in_another_thread_during_a_kept_call_does_not_wait():
    def meanwhile():
        with ThreadPoolExecutor(1) as other:
            return other.submit(run).result(30) == "outputs"

    run, notes = noted(meanwhile)
    notes.clear()
    with use_budget(1):
        run()
    assert notes == ["kept", 1, "run"]


def test_after_an_interrupt_there_is_another_kept_call():
    def interrupted():
        raise KeyboardInterrupt

    run, notes = noted(interrupted)
    notes.clear()
    with use_budget(1):
        for _ in range(2):
            with pytest.raises(KeyboardInterrupt):
                run()
    assert notes == ["kept", 1, "keep", "kept"]
