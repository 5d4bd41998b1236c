import io
import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from counted import Name, names
from hypothesis import HealthCheck, given, settings, strategies as st
from job_files import toml

from dmlcpu.batch import JobsError
from dmlcpu.jobs.entries import Listing, _no_duplicates, read_jobs
from dmlcpu.jobs.prepare import manifest_of

JOB = {"op": "top_k", "inputs": {"x": "a.npy"}, "attrs": {"k": 2}, "output": "b.npz"}


def read(folder: Path, text: str | bytes, name: str = "jobs.jsonl") -> Listing:
    (folder / name).write_bytes(text.encode() if isinstance(text, str) else text)
    return listed(read_jobs(folder / name, None))


def listed(listing: Listing) -> Listing:
    """Read all entries, to look at them more than once."""
    return listing._replace(entries=[*listing.entries])


def members(listing: Listing) -> list[dict[str, Any]]:
    assert not faults(listing)
    return [members for _, members in listing.entries]


def faults(listing: Listing) -> list[str]:
    return [f"{fault}".replace("\\", "/") for place, _ in listing.entries for fault in place.errors]


TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
SCALARS = st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | TEXT
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3), max_leaves=6)
ENTRIES = st.fixed_dictionaries(
    {"op": st.sampled_from(["top_k", "scatter-nd", "model.json"])},
    optional={
        "id": TEXT,
        "inputs": st.dictionaries(TEXT, TEXT | st.fixed_dictionaries({"path": TEXT, "dtype": TEXT}), max_size=3),
        "attrs": st.dictionaries(TEXT, VALUES, max_size=3),
        "output": TEXT | st.dictionaries(TEXT, TEXT, min_size=1, max_size=3),
        "files": st.lists(TEXT, max_size=3),
    },
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(entries=st.lists(ENTRIES, min_size=1, max_size=4), raw=st.booleans(), end=st.sampled_from(["\n", "\r\n"]))
def test_both_formats_say_the_same(tmp_path: Path, entries: list[dict[str, Any]], raw: bool, end: str) -> None:
    lines = "".join(json.dumps(entry, ensure_ascii=not raw) + end for entry in entries)
    tables = "".join(
        f"[[job]]{end}" + "".join(f"{name} = {toml(value)}{end}" for name, value in entry.items()) for entry in entries
    )
    expected = [{"inputs": {}, "attrs": {}} | entry for entry in entries]
    assert members(read(tmp_path, lines)) == expected
    assert members(read(tmp_path, tables, "jobs.toml")) == expected
    assert members(listed(read_jobs(entries, None))) == expected


def test_places(tmp_path: Path) -> None:
    line = json.dumps(JOB)
    listing = read(tmp_path, f"\ufeff{line}\r\n\r\n   \n{line}\n{line}")
    assert [place.where for place, _ in listing.entries] == [f"{tmp_path / 'jobs.jsonl'}:{n}" for n in (1, 4, 5)]
    assert (listing.source, listing.directory) == (str(tmp_path / "jobs.jsonl"), tmp_path)
    tables = '# [[job]]\n\n[[job]]\nop = "a"\noutput = "b"\n  [[ job ]]  # two\nop = "c"\n'
    listing = read(tmp_path, tables, "jobs.toml")
    assert [place.where for place, _ in listing.entries] == [f"{tmp_path / 'jobs.toml'}:{n}" for n in (3, 6)]
    # What looks like a header need not be one.
    listing = read(tmp_path, f'{tables}id = """\n[[job]]\n"""', "jobs.toml")
    places = [f"{tmp_path / 'jobs.toml'}: job {n}" for n in (1, 2)]
    assert [place.where for place, _ in listing.entries] == places
    assert [place.where for place, _ in read_jobs([JOB, JOB], tmp_path).entries] == ["jobs[0]", "jobs[1]"]


@pytest.mark.parametrize("character", "\u2028\u2029\x85\x1c\x0b\x0c")
def test_characters_that_some_take_for_ends_of_lines(tmp_path: Path, character: str) -> None:
    entry = JOB | {"id": f"a{character}b"}
    text = json.dumps(entry, ensure_ascii=not character.isprintable() and ord(character) < 32)
    assert members(read(tmp_path, f"{text}\n{text}\n")) == [entry] * 2


def test_standard_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"{json.dumps(JOB)}\n[]\n"))
    listing = listed(read_jobs("-", tmp_path))
    assert listing.directory == tmp_path
    assert faults(listing) == ["line 2: a list of 0; allowed: an object"]


def test_standard_input_as_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    def given_bytes(content: bytes) -> Listing:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content), "ascii"))
        return listed(read_jobs("-", None))

    entry = JOB | {"id": "é"}
    text = json.dumps(entry, ensure_ascii=False)
    assert members(given_bytes(f"\ufeff{text}\n".encode())) == [entry]
    with pytest.raises(JobsError) as error:
        given_bytes(b'{"id": "\xe9"}')
    assert str(error.value.faults[0]) == "standard input: not UTF-8 at byte 8; allowed: UTF-8 text"


def test_no_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(JobsError, match="closed"):
        listed(read_jobs("-", None))


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("{", "Expecting property name enclosed in double quotes (column 2); allowed: a JSON object"),
        (
            f'{{"attrs": {"9" * 5000}}}',
            "Exceeds the limit (4300 digits) for integer string conversion: value has 5000 "
            "digits; use sys.set_int_max_str_digits() to increase the limit; allowed: a JSON object",
        ),
        ("{} {}", "Extra data (column 4); allowed: a JSON object"),
        ('{"op": "a", "op": "b"}', "'op' twice; allowed: a JSON object"),
        ('{"op": "a", "attrs": {"k": 1, "k": 2}}', "'k' twice; allowed: a JSON object"),
        ("[" * 100_000, "maximum recursion depth exceeded"),
        ("3", "3; allowed: an object"),
        ("null", "null; allowed: an object"),
        ('{"opp": "a"}', "opp: unknown; allowed: id, op, inputs, attrs, output, glob, files"),
        ('{"op": "top_k", "k": 3}', "glob, files (arguments belong in inputs or attrs)"),
        ('{"op": 3}', "op: 3; allowed: the name of an operator, a DxDispatch model or a saved index"),
        ('{"op": ""}', "op: ''; allowed: the name of an operator, a DxDispatch model or a saved index"),
        ('{"id": ["a"]}', "id: a list of 1; allowed: text"),
        ('{"inputs": "a.npy"}', "inputs: 'a.npy'; allowed: an object: a file, or numbers, for each array"),
        ('{"attrs": {"": 1}}', "attrs: an object; allowed: an object: a value for each argument"),
        ('{"output": {}}', "output: an object; allowed: a file, or an object: a file for each of some results"),
        (
            '{"output": {"values": 3}}',
            "output: an object; allowed: a file, or an object: a file for each of some results",
        ),
        ('{"glob": null}', "glob: null; allowed: a pattern"),
        ('{"files": "a.npy"}', "files: 'a.npy'; allowed: a list of files"),
        ('{"files": [""]}', "files: a list of 1; allowed: a list of files"),
    ],
)
def test_a_faulty_line_does_not_hide_the_others(tmp_path: Path, line: str, fault: str) -> None:
    listing = read(tmp_path, f"{line}\n{json.dumps(JOB)}\n{line}\n")
    found = faults(listing)
    assert [text.removeprefix(f"{tmp_path / 'jobs.jsonl'}:")[:1] for text in found] == ["1", "3"]
    assert all(fault in text for text in found)
    assert listing.entries[1][1] == JOB


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("op = ", "Invalid value (at end of document); allowed: TOML"),
        ("[[job]]\nop = 'a'\nop = 'b'\n", "Cannot overwrite a value (at line 3, column 9); allowed: TOML"),
        ("[[jobs]]", "a table or key 'jobs'; allowed: [defaults] and [[job]]"),
        ("[job]\nop = 'a'", "[job]; allowed: [[job]], a table for each job"),
        (b"[[job]]\nop = '\xff'", "not UTF-8 at byte 14; allowed: UTF-8 text"),
    ],
)
def test_no_toml(tmp_path: Path, text: str | bytes, fault: str) -> None:
    with pytest.raises(JobsError) as error:
        read(tmp_path, text, "jobs.toml")
    assert str(error.value.faults[0]) == f"{tmp_path / 'jobs.toml'}: {fault}"


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("defaults = 3", "defaults: 3; allowed: an object"),
        (
            "defaults.opp = 3",
            "defaults.opp: unknown; allowed: id, op, inputs, attrs, output, glob, files "
            "(arguments belong in inputs or attrs)",
        ),
        ("job = [3]", "3; allowed: an object"),
        ("[[job]]\nid = 2026-01-02", "id: 2026-01-02; allowed: text"),
        (
            "[[job]]\nop = 07:32:00",
            "op: 07:32:00; allowed: the name of an operator, a DxDispatch model or a saved index",
        ),
        ("[[job]]\noutput = inf", "output: Infinity; allowed: a file, or an object: a file for each of some results"),
    ],
)
def test_toml_of_the_wrong_kind(tmp_path: Path, text: str, fault: str) -> None:
    (found,) = faults(read(tmp_path, text, "jobs.toml"))
    assert found.endswith(f": {fault}")


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_jobs(tmp_path / "jobs.jsonl", None)


def test_defaults(tmp_path: Path) -> None:
    listing = read(
        tmp_path,
        """
        [defaults]
        op = "top_k"
        inputs = { x = "x.npy" }
        attrs = { k = 5, mode = "smallest" }
        [[job]]
        output = "a.npz"
        [[job]]
        attrs = { k = 6 }
        output = "b.npz"
        [[job]]
        inputs = { k = "k.npy" }
        output = "c.npz"
        [[job]]
        op = "scatter_nd"
        attrs = { mode = "clip" }
        output = "d.npy"
        """,
        "jobs.toml",
    )
    smallest = {"op": "top_k", "inputs": {"x": "x.npy"}, "attrs": {"k": 5, "mode": "smallest"}}
    assert members(listing) == [
        smallest | {"output": "a.npz"},
        smallest | {"attrs": {"k": 6, "mode": "smallest"}, "output": "b.npz"},
        smallest | {"inputs": {"x": "x.npy", "k": "k.npy"}, "attrs": {"mode": "smallest"}, "output": "c.npz"},
        {"op": "scatter_nd", "inputs": {}, "attrs": {"mode": "clip"}, "output": "d.npy"},
    ]


def test_defaults_of_lines_are_for_those_after_them(tmp_path: Path) -> None:
    lines = [{"output": "a.npz"}, {"defaults": {"op": "top_k"}}, {"output": "b.npz"}, {"defaults": {}}, JOB]
    listing = read(tmp_path, "\n".join(map(json.dumps, lines)))
    assert [members.get("op") for _, members in listing.entries] == [None, "top_k", "top_k"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="of POSIX")
def test_jobs_from_a_pipe_are_as_those_from_standard_input(tmp_path: Path) -> None:
    """Such as `<(command)` of shells: nothing can be kept beside it, and it has no folder that jobs could be in."""
    os.mkfifo(tmp_path / "pipe")
    assert manifest_of(tmp_path / "pipe", None) is None
    assert manifest_of(tmp_path / "none", None) == tmp_path / "none.manifest.jsonl"
    writer = threading.Thread(target=(tmp_path / "pipe").write_text, args=[json.dumps(JOB)])
    writer.start()
    listing = listed(read_jobs(tmp_path / "pipe", None))
    writer.join()
    assert (listing.directory, len(listing.entries)) == (Path(), 1)


def test_programs_may_give_paths_and_scalars_of_numpy() -> None:
    job = {"files": (Path("a.npy"),), "op": "top_k", "attrs": {"k": np.int64(2), "fill_value": np.float32(0.5)}}
    ((place, found),) = read_jobs(
        [job | {"inputs": {"k": {"path": Path("k.npy")}}, "output": Path("b.npz")}], None
    ).entries
    assert found == {
        "files": ["a.npy"],
        "op": "top_k",
        "attrs": {"k": 2, "fill_value": 0.5},
        "inputs": {"k": {"path": "k.npy"}},
        "output": "b.npz",
    }
    assert type(found["attrs"]["k"]) is int
    assert not place.errors


@pytest.mark.parametrize("name", ["jobs.jsonl", "jobs.toml"])
@pytest.mark.parametrize("has_defaults", [False, True])
def test_a_file_without_jobs(tmp_path: Path, name: str, has_defaults: bool) -> None:
    defaults = {"jobs.jsonl": '\n{"defaults": {"op": "top_k"}}\n', "jobs.toml": 'defaults = {op = "top_k"}\n'}
    (tmp_path / name).write_text(defaults[name] if has_defaults else "\n")
    allowed = {"jobs.jsonl": "an object in each line", "jobs.toml": "[[job]], a table for each job"}
    with pytest.raises(JobsError) as error:
        read_jobs(tmp_path / name, None)
    assert [each.reason for each in error.value.faults] == [f"no jobs; allowed: {allowed[name]}"]


def test_repeated_names_are_found_in_linear_time() -> None:
    pairs = [(name, 0) for name in names(1000)]
    with pytest.raises(ValueError, match="'n999' twice"):
        _no_duplicates([*pairs, (Name("n999"), 0)])
    assert 0 < Name.comparisons < 100


@pytest.mark.parametrize("jobs", [None, 3])
def test_what_holds_no_jobs_is_refused(jobs: Any) -> None:
    with pytest.raises(TypeError, match=rf"^jobs is {jobs}; allowed: a file, or a list of jobs$"):
        read_jobs(jobs, None)
