from dmlcpu.common.faults import Fault
from dmlcpu.jobs.faults import JobFault, JobsError, Place
from dmlcpu.jobs.run import Failure
from dmlcpu.models.faults import ModelError


def fault(number: int, found: str = "5000") -> JobFault:
    return JobFault(f"jobs.jsonl:{number}", f"job{number}", "attrs.k", found, "0 to 9")


def test_each_fault_has_a_line() -> None:
    error = JobsError("jobs.jsonl", [fault(1), fault(3, "-1")])
    assert str(error).split("\n") == [
        "jobs.jsonl: 2 errors",
        "  jobs.jsonl:1 (job1): attrs.k: 5000; allowed: 0 to 9",
        "  jobs.jsonl:3 (job3): attrs.k: -1; allowed: 0 to 9",
    ]
    assert (error.field, error.found, error.allowed) == ("attrs.k", "5000", "0 to 9")


def test_a_mistake_in_very_many_jobs_has_one_line() -> None:
    faults = [fault(number) for number in range(30)]
    faults.insert(1, fault(99, "-1"))
    head, many, other = str(JobsError("jobs.jsonl", faults)).split("\n")
    assert head == "jobs.jsonl: 31 errors"
    names = ", ".join(f"job{number}" for number in range(1, 11))
    assert many == f"  jobs.jsonl:0 (job0): attrs.k: 5000; allowed: 0 to 9 (and so for {names}, 19 others)"
    assert other == "  jobs.jsonl:99 (job99): attrs.k: -1; allowed: 0 to 9"


def test_a_command_spells_members_its_own_way() -> None:
    place = Place("top-k", "a", options=str.upper)
    place.refuse("attrs.k", "x", "y")
    assert str(place.errors[0]) == "top-k (a): ATTRS.K: x; allowed: y"


def test_ids_have_no_control_characters_in_messages() -> None:
    id_ = "new\nline \x1b[31m \udcff é"
    shown = "new\\nline \\x1b[31m \\udcff é"
    assert str(JobFault("jobs", id_, "op", "x", "y")) == f"jobs ({shown}): op: x; allowed: y"
    assert str(Failure(id_, "jobs", "x")) == f"jobs ({shown}): x"


def test_after_twenty_lines_faults_are_counted_by_their_text() -> None:
    faults = [
        JobFault("jobs.jsonl:1", "", "inputs.x", f"'{number}.npy', which is no file", "a file") for number in range(990)
    ]
    faults += [fault(number, f"5{number}") for number in range(10)]
    head, *lines = str(JobsError("jobs.jsonl", faults)).split("\n")
    assert head == "jobs.jsonl: 1000 errors"
    assert lines[:20] == [f"  {each}" for each in faults[:20]]
    assert lines[20:22] == ["  980 more:", "    970 of: inputs.x: '...', which is no file; allowed: a file"]
    assert lines[22:] == [f"    1 of: attrs.k: 5{number}; allowed: 0 to 9" for number in range(9)] + [
        "    1 of other kinds"
    ]


def test_faults_that_are_not_shown_are_alike_wherever_they_are() -> None:
    faults = [Fault(f"$.commands[{number}].type", '"jump"', '"dispatch"') for number in range(25)]
    assert str(ModelError("model.json", faults)).split("\n")[-2:] == [
        "  5 more:",
        '    5 of: $.commands[...].type: "..."; allowed: "..."',
    ]
