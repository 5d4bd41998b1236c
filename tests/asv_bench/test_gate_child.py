"""The gate's child: its requests and answers, on a shrunk case and in a process of its own."""

import io
import json
import os
import sys
from pathlib import Path

import pytest
from asv_files import load

import dmlcpu

child, turns, processes, environments, cells, changes = (
    load(f"gate.{name}") for name in ("child", "turns", "processes", "environments", "cells", "changes")
)
TOP_K = {"table": "top_k", "case": "1000x10000 k 10 float32", "implementation": "dmlcpu"}


def answers(*requests):
    """Return the child's answers to requests, made in this process."""
    lines = io.StringIO("".join(f"{json.dumps(request)}\n" for request in requests))
    child.serve(lines, printed := io.StringIO())
    return [json.loads(line) for line in printed.getvalue().splitlines()]


def test_hello_says_what_runs():
    (hello,) = answers({"do": "hello"})
    assert hello["dmlcpu"] == str(Path(dmlcpu.__file__).parent)
    assert hello["threads"] == dmlcpu.get_num_threads()
    assert set(hello["versions"]) == {"Python", "numba", "llvmlite", "numpy"}


def test_tables_are_those_of_the_benchmarks():
    (tables,) = answers({"do": "tables"})
    assert tables == {name: list(table) for name, table in load("benchmarks.common").TABLES.items()}


@pytest.mark.parametrize("cell", [TOP_K, *(control._asdict() for control in cells.CONTROLS)])
def test_a_cell_is_built_and_timed(cell):
    built, turn = answers({"do": "build", **cell}, {"do": "turn", "samples": 2, "calls": 3})
    assert built["seconds"] > 0
    assert turn["seconds"] > 0


def test_a_turn_is_the_least_of_its_samples(monkeypatch):
    one = child.Child()
    one.call = lambda: None
    samples = iter([0.3, 0.1, 0.2])
    monkeypatch.setattr(one, "_sample", lambda calls: next(samples))
    assert one.turn(samples=3, calls=1) == {"seconds": 0.1}


@pytest.mark.parametrize(
    "error", [AttributeError("no such function"), ImportError("no module"), TypeError("no argument")]
)
def test_what_a_commit_cannot_do_is_an_answer(monkeypatch, error):
    def fails(case, implementation):
        raise error

    fails.cache_clear = lambda: None
    monkeypatch.setattr(child.peers, "build", fails)
    (built,) = answers({"do": "build", **TOP_K})
    assert built == {"missing": f"{type(error).__name__}: {error}"}


def test_a_case_that_the_tables_lack_is_an_answer():
    (built,) = answers({"do": "build", **TOP_K, "case": "no such case"})
    assert built == {"missing": "KeyError: is not in the table"}


@pytest.mark.slow
def test_processes_take_turns(tmp_path):
    """Without isolation, which would hide a dmlcpu that is found by PYTHONPATH."""
    path = os.pathsep.join([str(Path(dmlcpu.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    side = environments.Side([sys.executable, str(environments.CHILD)], {**os.environ, "PYTHONPATH": path}, tmp_path)
    tiny = cells.Cell("tiny", "top_k: 1x64 k 8 float32")
    answers({"do": "build", **tiny._asdict()})  # compiles once for the three processes
    found = turns.measure({"base": side, "head": side}, [cells.CONTROLS[0], tiny], 2)
    assert [each.cell for each in found] == [cells.CONTROLS[0], tiny]
    for each in found:
        assert not each.missing
        assert {name: len(seconds) for name, seconds in each.seconds.items()} == {
            turns.BASE: 2,
            turns.HEAD: 2,
            turns.AGAIN: 2,
        }
        assert all(second > 0 for seconds in each.seconds.values() for second in seconds)


def test_a_process_that_ends_is_an_error(tmp_path):
    side = environments.Side([sys.executable, "-c", "raise SystemExit(3)"], dict(os.environ), tmp_path)
    with (
        processes.started({"base": side}) as started,
        pytest.raises(changes.GateError, match="the process of base ended with status 3"),
    ):
        started["base"].ask("hello")
