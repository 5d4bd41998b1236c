import sys

import pytest

from dmlcpu.common.imports import MissingExtraError
from dmlcpu.models.faults import Faults
from dmlcpu.models.relaxed_json import parse


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": [1, 2.5, -3e2], "b": "x"}', {"a": [1, 2.5, -300.0], "b": "x"}),
        ('// first\n{"a": 1} // last', {"a": 1}),
        ('{"a": /* one\n two */ 1, /**/ "b": 2}', {"a": 1, "b": 2}),
        ('{"a": [1, 2,], "b": {"c": 3,},}', {"a": [1, 2], "b": {"c": 3}}),
        ('{"a": [1, // one\n /* none */ ] , }', {"a": [1]}),
        ('{"path": "http://x/*y*/,]"}', {"path": "http://x/*y*/,]"}),
        (r'{"quoted": "a \" // b \\", /* "c" */}', {"quoted": 'a " // b \\'}),
        ("{a: 'single quotes', b: 0x10}", {"a": "single quotes", "b": 16}),
        ("null", None),
        ('{"a":1,\n' + "/" * 200 + '\n "b":2}', {"a": 1, "b": 2}),
        ('{"a":1,' + " /* note */" * 100 + '"b":2}', {"a": 1, "b": 2}),
        ('{"a":1,' + " /* note */" * 100 + "}", {"a": 1}),
    ],
)
def test_relaxed_text_is_read(text: str, value: object) -> None:
    faults = Faults()
    assert parse(text, faults) == value
    assert not faults


def test_integers_and_the_order_of_names_are_kept() -> None:
    data = parse('{"b": 1, "a": 1.0, /**/}', Faults())
    assert list(data) == ["b", "a"]
    assert [type(value) for value in data.values()] == [int, float]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ('{"a": 1,\n "b": }', '$: unexpected "}" at line 2, column 7'),
        ('{\n  "a": [1 2]\n}', '$: unexpected "2" at line 2, column 11'),
        ('{"a": 1', "$: unexpected end of input at line 1, column 8"),
        ('{"a": 1} {}', '$: unexpected "{" at line 1, column 10'),
        ('{"a": 1} /* no end', "$: unexpected end of input at line 1, column 19"),
        ('{"a": 1} /*/', "$: unexpected end of input at line 1, column 13"),
        ('{"a": "x\ny"}', r'$: unexpected "\n" at line 1, column 9'),
        (" \n", "$: an empty file"),
        ("[" * 100_000, "$: lists or objects nested too deeply to be read"),
        ('{"a": {"b": 1, "c": 2, "b": 3}}', "$.a.b: the name more than once"),
        ('{"a": [0, {"b": 1, /**/ "b": 3}]}', "$.a[1].b: the name more than once"),
        ("{a: 1, 'a': 3}", "$.a: the name more than once"),
    ],
)
def test_a_fault_has_its_place_or_line_and_column(text: str, fault: str) -> None:
    faults = Faults()
    data = parse(text, faults)
    (found,) = faults.in_order_of(data)
    assert f"{found.path}: {found.found}" == fault


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "json5", None)
    assert parse("[1, /* needs no json5 */]", Faults()) == [1]
    with pytest.raises(
        MissingExtraError, match=r"needs the package json5: pip install '\.\[cli\]' in a clone of dmlcpu"
    ):
        parse("{a: 1}", Faults())
