from dmlcpu.models.faults import Faults, json_path


def test_paths_are_written_as_json_paths() -> None:
    assert json_path(()) == "$"
    assert json_path(("commands", 0, "bindings", "InputTensor")) == "$.commands[0].bindings.InputTensor"
    assert json_path(("resources", "my buffer", "a.b")) == '$.resources["my buffer"]["a.b"]'


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
