import pickle

from dmlcpu import DmlError
from dmlcpu.batch import Fault, JobFault, JobsError, ModelError
from dmlcpu.common.faults import FaultsError, listed, printable, shown


def test_error_lists_each_fault_with_what_is_allowed() -> None:
    error = ModelError("m.json", [Fault("$.a", "1", "2"), Fault("$.b", "'x'", "y, z")])
    assert str(error) == "m.json: 2 errors\n  $.a: 1; allowed: 2\n  $.b: 'x'; allowed: y, z"
    assert str(ModelError("m.json", error.faults[:1])) == "m.json: 1 error\n  $.a: 1; allowed: 2"
    assert isinstance(error, DmlError)
    assert (error.operator, error.field, error.found, error.allowed) == ("m.json", "$.a", "1", "2")


def test_faults_of_models_and_of_jobs_are_one_kind_and_raised_as_one_error() -> None:
    fault = JobFault("jobs.jsonl:3", "a", "attrs.k", "5", "0-4")
    assert isinstance(fault, Fault)
    assert (fault.place, fault.id, fault.field) == ("jobs.jsonl:3", "a", "attrs.k")
    assert (fault.found, fault.allowed) == ("5", "0-4")
    for error in (ModelError("m.json", [Fault("$.a", "1", "2")]), JobsError("jobs.jsonl", [fault])):
        assert isinstance(error, FaultsError)
        assert str(error).startswith(f"{error.operator}: 1 error\n  ")
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), str(again), again.faults) == (type(error), str(error), error.faults)


def test_long_values_are_shown_by_their_kind_or_cut() -> None:
    assert shown({"a": 1}) == "an object"
    assert shown([1, 2]) == "a list of 2"
    assert [shown(value) for value in (None, True, 1.5, "x")] == ["null", "true", "1.5", "'x'"]
    assert shown("x" * 1000) == "'" + "x" * 76 + "..."


def test_an_empty_list_of_names_is_said_in_words() -> None:
    assert listed(["a", "b"]) == "a, b"
    assert listed([]) == "nothing (there are none)"


def test_control_characters_are_escaped() -> None:
    assert printable("new\nline \x1b[31m \udcff é") == "new\\nline \\x1b[31m \\udcff é"
