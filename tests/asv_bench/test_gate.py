"""The gate from its arguments to its exit code, with processes that time nothing."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from asv_files import load

gate, changes, environments = load("gate.__main__"), load("gate.changes"), load("gate.environments")
FAKE_CHILD = Path(__file__).parent / "fake_child.py"
TABLES = {"newest": ["one", "other"]}  # no group has it: it belongs to all
KERNEL = b"def kernel():\n    return 1\n"


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """A repository of two commits, HEAD~1 and HEAD; HEAD changes a kernel of top_k."""
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    folder = tmp_path / "repository"
    kernel = folder / "dmlcpu/kernels/top_k/lockstep.py"
    kernel.parent.mkdir(parents=True)
    commit(folder, kernel, KERNEL, init=True)
    commit(folder, kernel, KERNEL.replace(b"1", b"2"))
    monkeypatch.setattr(gate, "REPOSITORY", folder)
    return folder


def commit(folder, path, content, init=False):
    path.write_bytes(content)
    identity = ["-c", "user.name=tests", "-c", "user.email=tests@example.com"]
    for step in ([["init", "--quiet"]] if init else []) + [["add", "-A"], ["commit", "--quiet", "-m", "a change"]]:
        subprocess.run(["git", *identity, *step], cwd=folder, check=True)


@pytest.fixture
def run(repository, tmp_path, monkeypatch, capsys):
    """Return a function that runs the gate with made-up seconds; it returns the exit code and what was printed."""

    def run(*arguments, base=None, **head):
        def make(*_):
            return {
                "base": side(tmp_path / "base", **(base or {})),
                "head": side(tmp_path / "head", **head),
            }

        monkeypatch.setattr(environments, "make", make)
        code = gate.main([*arguments])
        return code, capsys.readouterr()

    return run


def side(place, **fake):
    place.mkdir(exist_ok=True)
    fake = {"folder": str(place), "tables": TABLES, **fake}
    return environments.Side([sys.executable, str(FAKE_CHILD)], {**os.environ, "FAKE": json.dumps(fake)}, place)


def rows(printed):
    """Return the verdicts of the table by the names of its cells."""
    table = [line.strip("| ").split(" | ") for line in printed.out.splitlines() if line.startswith("| ")]
    assert table[0] == ["cell", "base ms", "head ms", "head / base", "interval", "A/A", "verdict"]
    return {row[0]: row[-1] for row in table[1:]}


def test_equal_commits_are_quiet(run):
    code, printed = run("HEAD~1")
    assert code == 0
    assert set(rows(printed).values()) == {"quiet"}
    assert "No slowdown." in printed.out
    assert "2 threads; Python 3, numba 1, numpy 2." in printed.out
    assert "gate: again" not in printed.err  # nothing had to be confirmed


def test_a_slowdown_is_timed_again_and_reported(run):
    code, printed = run("HEAD~1", factors={"one": 1.1})
    assert code == 1
    found = rows(printed)
    assert (found["newest: one"], found["newest: other"]) == ("slower", "quiet")
    assert "gate: again: 3 of 3: newest: one" in printed.err


def test_a_gain_passes(run):
    code, printed = run("HEAD~1", factors={"one": 0.8})
    assert (code, rows(printed)["newest: one"]) == (0, "faster")


def test_the_threshold_is_an_option(run):
    assert run("HEAD~1", "--threshold", "1.2", factors={"one": 1.1})[0] == 0


def test_a_biased_control_withholds_the_verdict(run):
    code, printed = run("HEAD~1", factors={"np.sort": 1.1, "one": 1.1})
    assert code == 2
    assert "No verdict: np.sort took 1.1" in printed.out


def test_a_new_case_is_no_error(run):
    code, printed = run("HEAD~1", base={"missing": {"one": "AttributeError: no"}})
    assert (code, rows(printed)["newest: one"]) == (0, "new (AttributeError: no)")


def test_nothing_that_both_can_do_is_no_verdict(run):
    code, printed = run("HEAD~1", base={"missing": dict.fromkeys(TABLES["newest"], "ImportError: no")})
    assert code == 2
    assert "no cell could be timed on both sides" in printed.out


def test_a_comment_runs_nothing(run, repository):
    commit(repository, repository / "dmlcpu/kernels/top_k/lockstep.py", KERNEL.replace(b"1", b"2  # two"))
    code, printed = run("HEAD~1", dies=True)
    assert code == 0
    assert printed.out.startswith("Nothing that is timed was touched between ")
    assert run("HEAD~1", "--all", dies=True)[0] == 2  # --all does run it


def test_what_the_map_calls_untimed_is_named(run, repository):
    path = repository / "dmlcpu/cli/run.py"
    path.parent.mkdir()
    commit(repository, path, KERNEL)
    code, printed = run("HEAD~1")
    assert code == 0
    assert printed.out.rstrip().endswith(": dmlcpu/cli/run.py.")


@pytest.mark.parametrize(
    ("arguments", "head", "words"),
    [
        (["nosuch"], {}, "nosuch"),
        (["HEAD~1"], {"dies": True}, "the process of head ended with status 3"),
        (["HEAD~1"], {"numpy": "3"}, "the versions differ"),
        (["HEAD~1"], {"folder": "/elsewhere"}, "which is not its own environment"),
        (["HEAD~1", "--tables", "nosuch"], {}, "no table nosuch; there are top_k, "),
        (["HEAD~1", "--cases", "nosuch"], {}, "no case with 'nosuch' in its name is affected by the change; --all"),
        (["HEAD~1", "--tables", "sort", "--all"], {}, "no case of the tables sort exists"),
    ],
)
def test_what_cannot_be_judged_is_said(run, arguments, head, words):
    code, printed = run(*arguments, **head)
    assert code == 2
    assert printed.err.splitlines()[-1].startswith("gate: no verdict: ")
    assert words in printed.err


def test_a_table_that_does_not_exist_is_named_also_if_nothing_was_touched(run):
    code, printed = run("HEAD", "HEAD", "--tables", "nosuch")
    assert code == 2
    assert "no table nosuch" in printed.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--turns", "5"], "'5' is no number of at least 9"),
        (["--limit", "none"], "'none' is no number of at least 1"),
        (["--threshold", "1"], "'1' is no number between 1 and 100"),
    ],
)
def test_wrong_options_are_named(capsys, arguments, words):
    with pytest.raises(SystemExit, match="2"):
        gate.main(["HEAD", *arguments])
    assert words in capsys.readouterr().err
