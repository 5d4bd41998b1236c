from counted import Name, names

from dmlcpu.models.faults import Faults, json_path


def test_paths_are_written_as_json_paths() -> None:
    assert json_path(()) == "$"
    assert json_path(("commands", 0, "bindings", "InputTensor")) == "$.commands[0].bindings.InputTensor"
    assert json_path(("resources", "my buffer", "a.b")) == '$.resources["my buffer"]["a.b"]'
    assert json_path(("größe", "\ud837", "\u202e")) == r'$.größe["\ud837"]["\u202e"]'


def test_faults_come_once_in_the_order_of_the_file() -> None:
    faults = Faults()
    for path in (("b", 10), ("b", 2), ("a", "missing"), ("a", "y"), ("b", 10), (), ("a",)):
        faults.at(*path).add("wrong", "right")
    data = {"a": {"x": 1, "y": 2}, "b": [0] * 11}
    assert [fault.path for fault in faults.in_order_of(data)] == [
        "$",
        "$.a",
        "$.a.y",
        "$.a.missing",
        "$.b[2]",
        "$.b[10]",
    ]


def test_repeated_names_are_found_in_linear_time() -> None:
    data = {"resources": dict.fromkeys(names(1000), 0)}
    faults = Faults()
    for name in names(1000)[::-1]:
        faults.at("resources", name).add("the name more than once", "each name once in an object")
    found = faults.in_order_of(data)
    assert 0 < Name.comparisons < 10_000
    assert [fault.path for fault in found] == [f"$.resources.n{number}" for number in range(1000)]
