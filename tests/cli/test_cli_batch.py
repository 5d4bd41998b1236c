"""``dmlcpu batch`` as somebody at a terminal, or a script, sees it."""

import contextlib
import json
import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import commands
import numpy as np
import pytest
from cli_calls import Run, environment
from told import without_compiling

import dmlcpu

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="of Linux")
CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]")  # all but the ends of lines


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three files in `in`, and jobs for them; it is the current directory."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").mkdir()
    for name in "abc":
        np.save(tmp_path / "in" / f"{name}.npy", np.random.default_rng(ord(name)).random((4, 9), np.float32))
    (tmp_path / "jobs.toml").write_text(
        """
        [[job]]
        glob = "in/*.npy"
        id = "{stem}"
        op = "top-k"
        attrs.k = 2
        output = "out/{stem}.npz"
        """
    )
    return tmp_path


def without_time(lines: list[str]) -> list[str]:
    return [re.sub(r"in \d+\.\d s$", "in T s", line) for line in lines]


def test_all_done_and_nothing_left(run: Run, folder: Path) -> None:
    code, out, err = run("batch", "jobs.toml")
    assert (code, out, without_time(err)) == (0, [], ["dmlcpu: 3 done, in T s"])
    for name in "abc":
        with np.load(folder / "out" / f"{name}.npz") as found:
            np.testing.assert_array_equal(found["values"], dmlcpu.top_k(np.load(f"in/{name}.npy"), 2).values)
    code, out, err = run("batch", "jobs.toml")
    assert (code, out) == (0, [])
    assert without_time(err) == ["dmlcpu: resuming: 3 of 3 done, 0 to do", "dmlcpu: 3 done before, in T s"]


def test_some_are_not_right(run: Run, folder: Path) -> None:
    (folder / "in" / "b.npy").write_bytes(b"")
    code, out, err = run("batch", "jobs.toml")
    assert (code, out, err[0]) == (2, [], "dmlcpu: jobs.toml: 1 error")
    assert err[1].startswith("  jobs.toml:2 (b): inputs.x: 'in/b.npy': ")
    assert not (folder / "out").exists()
    code, out, err = run("batch", "jobs.toml", "--json")
    (fault,) = json.loads("".join(out))["faults"]
    assert (code, list(fault)) == (2, ["place", "id", "field", "found", "allowed"])
    code, out, err = run("batch", "jobs.toml", "--keep-going")
    assert (code, out) == (1, [])
    assert err[0].startswith("dmlcpu: failed: jobs.toml:2 (b): inputs.x: 'in/b.npy': ")
    assert without_time(err[1:]) == ["dmlcpu: 2 done, 1 failed, in T s"]
    code, out, err = run("batch", "jobs.toml", "--keep-going", "--quiet")
    assert (code, out, len(err)) == (1, [], 1)


@pytest.mark.usefixtures("folder")
def test_after_twenty_lines_failures_are_counted(run: Run) -> None:
    jobs = [{"op": "top_k", "inputs": {"x": f"no{n}.npy"}, "attrs": {"k": 1}, "output": f"{n}.npz"} for n in range(30)]
    Path("jobs.jsonl").write_text("".join(json.dumps(job) + "\n" for job in jobs))
    counted = ["    10 of: inputs.x: '...', which does not exist; allowed: a file"]
    _, _, err = run("batch", "jobs.jsonl")
    assert (err[0], len(err), err[21:]) == ("dmlcpu: jobs.jsonl: 30 errors", 23, ["  10 more:", *counted])
    lines = run("batch", "jobs.jsonl", "--keep-going")[2]
    quiet = run("batch", "jobs.jsonl", "--keep-going", "--quiet")[2]
    assert lines[:-1] == quiet
    assert quiet[19].startswith("dmlcpu: failed: jobs.jsonl:20 (19.npz): ")
    assert quiet[20:] == ["dmlcpu: failed: 10 more:", *(line[2:] for line in counted)]
    assert len(json.loads("".join(run("batch", "jobs.jsonl", "--keep-going", "--json")[1]))["failures"]) == 30


def test_fail_fast(run: Run, folder: Path) -> None:
    (folder / "in" / "a.npy").write_bytes(b"")
    code, _, err = run("batch", "jobs.toml", "--keep-going", "--fail-fast")
    assert (code, without_time(err)[-1]) == (1, "dmlcpu: 1 failed, 2 not run, in T s")
    code, _, err = run("batch", "jobs.toml", "--keep-going", "--max-failures", 2)
    assert (code, without_time(err)[-1]) == (1, "dmlcpu: 2 done, 1 failed, in T s")


def test_retry_failed_and_force(run: Run, folder: Path) -> None:
    whole = (folder / "in" / "a.npy").read_bytes()
    (folder / "in" / "a.npy").write_bytes(b"")
    run("batch", "jobs.toml", "--keep-going", "--fail-fast")
    (folder / "in" / "a.npy").write_bytes(whole)
    code, _, err = run("batch", "jobs.toml", "--retry-failed")
    assert (code, without_time(err)) == (0, ["dmlcpu: 1 done, 2 left out, as not recorded as failed, in T s"])
    code, _, err = run("batch", "jobs.toml", "--force")
    assert (code, without_time(err)) == (0, ["dmlcpu: 3 done, in T s"])
    code, _, err = run("batch", "jobs.toml", "--force", "--retry-failed")
    assert (code, err) == (2, ["dmlcpu: --force is given together with --retry-failed; allowed: one of the two"])


def test_require_chunks(run: Run, folder: Path) -> None:
    zarr = pytest.importorskip("zarr")
    zarr.create_array(folder / "x.zarr", shape=(4, 4), dtype="f4")
    code, out, _ = run("top-k", "x.zarr", "-o", "y.npz", "--k", 1, "--dry-run")
    assert (code, out[0].rpartition("; ")[2]) == (0, "missing chunks of x, which are its fill value: 1")
    code, _, err = run("top-k", "x.zarr", "-o", "y.npz", "--k", 1, "--require-chunks")
    assert (code, err[1].rpartition(": ")[2]) == (2, "all chunks, as they are required")


def test_hash(run: Run, folder: Path) -> None:
    run("batch", "jobs.toml", "--hash")
    (folder / "in" / "a.npy").touch()
    assert without_time(run("batch", "jobs.toml", "--hash")[2])[-1] == "dmlcpu: 3 done before, in T s"
    assert without_time(run("batch", "jobs.toml")[2])[-1] == "dmlcpu: 1 done, 2 done before, in T s"


def test_json(run: Run, folder: Path) -> None:
    code, out, err = run("batch", "jobs.toml", "--json", "--quiet")
    summary = json.loads("".join(out))
    assert (code, err) == (0, [])
    assert summary.pop("seconds") > 0
    assert summary == {
        "jobs": 3,
        "done_before": 0,
        "left_out": 0,
        "done": 3,
        "failed": 0,
        "failures": [],
        "interrupted": False,
    }
    (folder / "in" / "b.npy").write_bytes(b"")
    code, out, _ = run("batch", "jobs.toml", "--json", "--quiet", "--keep-going")
    (failure,) = json.loads("".join(out))["failures"]
    assert (code, failure["id"], failure["place"]) == (1, "b", "jobs.toml:2")


def test_dry_run(run: Run, folder: Path) -> None:
    code, out, err = run("batch", "jobs.toml", "--dry-run")
    assert (code, len(out), err) == (0, 4, [])
    assert out[0].startswith("a: top-k by ")
    code, out, err = run("batch", "jobs.toml", "--dry-run", "--json")
    plan = json.loads("".join(out))
    assert (code, err, plan["done_before"]) == (0, [], 0)
    assert [job["outputs"] for job in plan["jobs"]] == [{"values": "(4, 2) float32", "indices": "(4, 2) int64"}] * 3
    (folder / "in" / "b.npy").write_bytes(b"")
    code, out, _ = run("batch", "jobs.toml", "--dry-run")
    assert code == 2
    assert out[1].startswith("jobs.toml:2 (b): inputs.x: ")
    code, out, _ = run("batch", "jobs.toml", "--dry-run", "--keep-going", "--json")
    assert (code, [len(job["faults"]) for job in json.loads("".join(out))["jobs"]]) == (1, [0, 1, 0])
    assert sorted(path.name for path in folder.iterdir()) == ["in", "jobs.toml"]


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["no.jsonl"], "dmlcpu: no.jsonl: No such file or directory"),
        (["in"], "dmlcpu: in: Is a directory"),
        (
            ["jobs.toml", "--max-memory", "much"],
            "dmlcpu: --max-memory is 'much'; allowed: at least 1M, as in 512M or 4G",
        ),
        (
            ["jobs.toml", "--manifest", "in/a.npy"],
            "dmlcpu: --manifest is 'in/a.npy'; allowed: a file that is not one of the jobs'",
        ),
        (["jobs.toml", "--manifest", "in/a.npy/m"], "dmlcpu: in/a.npy: File exists"),
        (["jobs.toml", "--jobs", "0"], "dmlcpu batch: error: argument --jobs: '0'; allowed: an integer of at least 1"),
        (
            ["jobs.toml", "--retries", "-1"],
            "dmlcpu batch: error: argument --retries: '-1'; allowed: an integer of at least 0",
        ),
        ([], "dmlcpu batch: error: the following arguments are required: JOBS"),
        (
            ["jobs.toml", "--log", "jobs.toml"],
            "dmlcpu: --log is 'jobs.toml'; allowed: a file that is not one of the jobs'",
        ),
    ],
)
@pytest.mark.usefixtures("folder")
def test_usage(run: Run, argv: list[str], message: str) -> None:
    code, out, err = run("batch", *argv)
    assert (code, out, err[-1]) == (2, [], message)
    assert not Path("out").exists()


def test_a_cluster_that_is_not_there(run: Run, folder: Path) -> None:
    pytest.importorskip("distributed")
    code, out, err = run("batch", "jobs.toml", "--scheduler", "nowhere")
    assert (code, out) == (1, [])
    assert err[-1].startswith("dmlcpu: no scheduler at nowhere: ")
    assert not (folder / "out").exists()


def test_standard_input(folder: Path) -> None:
    lines = "".join(
        json.dumps({"op": "top_k", "inputs": {"x": f"in/{name}.npy"}, "attrs": {"k": 1}, "output": f"out/{name}.npz"})
        + "\n"
        for name in "abc"
    )
    log = "/dev/stdout" if os.path.exists("/dev/stdout") else "log"
    argv = [sys.executable, "-m", "dmlcpu", "batch", "-", "--log", log]
    done = subprocess.run(argv, input=lines, env=environment(), capture_output=True, text=True, check=False)
    assert (done.returncode, without_time(without_compiling(done.stderr).splitlines())) == (
        0,
        ["dmlcpu: 3 done, in T s"],
    )
    if os.path.exists("/dev/stdout"):
        assert [json.loads(line)["id"] for line in done.stdout.splitlines()] == [f"out/{name}.npz" for name in "abc"]
    assert sorted(path.name for path in (folder / "out").iterdir()) == ["a.npz", "b.npz", "c.npz"]
    (folder / "typed").write_text("{\n[]\n")
    done = commands.run("batch", "-", stdin=str(folder / "typed"))
    assert (done.returncode, done.stdout) == (2, "")
    assert [line[:13] for line in done.stderr.splitlines()] == ["dmlcpu: stand", "  line 1: Exp", "  line 2: a l"]


@pytest.mark.usefixtures("folder")
def test_no_tqdm(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    broken: Any = None
    monkeypatch.setitem(sys.modules, "tqdm", broken)
    assert run("batch", "jobs.toml") == (
        2,
        [],
        ["dmlcpu: the command line needs the package tqdm: pip install '.[cli]' in a clone of dmlcpu"],
    )
    assert run("batch", "jobs.toml", "--quiet") == (0, [], [])


@pytest.fixture
def large(folder: Path) -> Path:
    """Jobs that take a while, one of which fails."""
    for number in range(60):
        np.save(folder / "in" / f"{number}.npy", np.random.default_rng(number).random((200, 500), np.float32))
    (folder / "in" / "7.npy").write_bytes(b"")
    return folder


@LINUX
@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("options", [[], pytest.param(["--jobs", "2"], marks=pytest.mark.slow)], ids=["1", "2"])
def test_into_files_there_are_no_control_characters(options: list[str]) -> None:
    done = commands.run("batch", "jobs.toml", "--keep-going", "--json", *options)
    assert done.returncode == 1
    assert not CONTROL.search(done.stdout + done.stderr)
    failed, *_, summary = done.stderr.splitlines()  # a slow machine also prints its progress
    assert failed.startswith("dmlcpu: failed: jobs.toml:2 (7): ")
    assert summary.startswith("dmlcpu: 62 done, 1 failed, in ")
    assert len(done.stdout.splitlines()) == 1


SLOW = """\
import sys, threading
from dmlcpu.jobs.step import Step
real = Step.compute
def slow(self, stopping):
    threading.Event().wait(0.01)
    real(self, stopping)
Step.compute = slow
from dmlcpu.cli import main
sys.exit(main(sys.argv[1:]))
"""


def on_a_terminal(*argv: str, **variables: str) -> tuple[int, str, str]:
    """Run the command line with standard error at a terminal; return the code, standard output, and what that got."""
    import fcntl
    import pty
    import struct
    import termios

    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 25, 100, 0, 0))
    variables |= {"TERM": "xterm-256color"}

    def shown() -> bytes:
        text = b""
        with contextlib.suppress(OSError):  # what a terminal says when all have gone
            while part := os.read(ours, 1 << 16):
                text += part
        return text

    name = os.ttyname(theirs)
    with ThreadPoolExecutor(1) as executor:
        text = executor.submit(shown)
        try:
            done = commands.run(*argv, code=SLOW, stdin=name, stderr=name, **variables)
        finally:
            os.close(theirs)
    os.close(ours)
    return done.returncode, done.stdout, without_compiling(text.result().decode().replace("\r\n", "\n"))


def screen(text: str) -> list[str]:
    """Return what a terminal shows in the end."""
    lines = []
    for line in text.split("\n"):
        cells: list[str] = []
        for part in line.split("\r"):
            cells[: len(part)] = part
        lines.append("".join(cells).rstrip())
    return lines


@LINUX
@pytest.mark.usefixtures("large")
def test_on_a_terminal_there_is_a_bar() -> None:
    code, out, text = on_a_terminal("batch", "jobs.toml", "--keep-going")
    assert (code, out) == (1, "")
    frames = [frame for line in text.split("\n") for frame in line.split("\r") if "%|" in frame]
    frames = [frame for frame in frames if not frame.startswith("checking: ")]  # which shows if that takes long
    assert frames[0].startswith("0 of 62 jobs, 1 failed:   0%|")
    assert len(frames) > 3
    assert all(len(frame) <= 100 for frame in frames)
    pattern = (
        r"\d+ of 62 jobs, 1 failed: +\d+%\|[^|]*\| [\d.]+[kM]?/22\.\dM \[00:\d\d<(\d\d:\d\d|\?), +(\?|[\d.]+[kM]?)B/s\]"
    )
    assert [frame for frame in frames if not re.fullmatch(pattern, frame.rstrip())] == []
    assert "\x1b" not in text
    failed, summary, end = screen(text)
    assert failed.startswith("dmlcpu: failed: jobs.toml:2 (7): ")
    assert summary.startswith("dmlcpu: 62 done, 1 failed, in ")
    assert end == ""


@LINUX
@pytest.mark.usefixtures("large")
def test_quiet_and_no_color_on_a_terminal() -> None:
    code, _, text = on_a_terminal("batch", "jobs.toml", "--keep-going", "--quiet")
    (failed, end) = text.split("\n")
    assert (code, failed[:36], end) == (1, "dmlcpu: failed: jobs.toml:2 (7): inp", "")
    assert not CONTROL.search(text)
    code, _, text = on_a_terminal("batch", "jobs.toml", "--keep-going", "--force", NO_COLOR="1")
    assert "\x1b" not in text
    assert screen(text)[-2].startswith("dmlcpu: 62 done, 1 failed")


@LINUX
def test_a_bar_while_jobs_are_checked(folder: Path) -> None:
    (folder / "jobs.jsonl").write_text(
        "".join(
            json.dumps({"op": "top_k", "inputs": {"x": "in/a.npy"}, "attrs": {"k": 1}, "output": f"out/{n}.npz"}) + "\n"
            for n in range(4000)
        )
    )
    code, _, text = on_a_terminal("batch", "jobs.jsonl", "--fail-fast", "--max-memory", "1M", "--dry-run")
    assert code == 0
    assert screen(text)[-1] == ""
    (folder / "in" / "a.npy").write_bytes(b"")
    code, _, text = on_a_terminal("batch", "jobs.jsonl")
    assert code == 2
    assert screen(text)[0] == "dmlcpu: jobs.jsonl: 4000 errors"


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX shells close files so")
@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "where", [pytest.param("2>&-", marks=pytest.mark.slow), "2>/dev/full", "2>&1 >&- | true", "<&- >&- 2>&-"]
)
def test_jobs_finish_when_progress_cannot_be_written(folder: Path, where: str, workers: int) -> None:
    """A closed terminal, a full disk, `2>&1 | head`: all jobs run, and nothing is printed elsewhere."""
    if "full" in where and not os.path.exists("/dev/full"):
        pytest.skip("no /dev/full here")
    (folder / "in" / "b.npy").write_bytes(b"")
    command = f"-m dmlcpu batch jobs.toml --keep-going --jobs {workers}"
    script = f'{{ sleep 0.2; "$PYTHON" {command}; echo $? > code; }} {where}'
    env = {**environment(), "PYTHON": sys.executable}
    done = subprocess.run(script, shell=True, env=env, capture_output=True, text=True, timeout=300)
    assert done.stdout == ""
    for _ in range(3000):  # the shell does not wait for all of a pipe
        if (folder / "code").is_file() and (folder / "code").read_text():
            break
        time.sleep(0.01)
    assert (folder / "code").read_text() == "1\n"
    assert sorted(path.name for path in (folder / "out").iterdir()) == ["a.npz", "c.npz"]


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere such a folder cannot be removed")
def test_a_current_folder_that_is_gone(folder: Path) -> None:
    script = 'mkdir gone; cd gone; rmdir ../gone; "$PYTHON" -m dmlcpu top-k ../in/a.npy -o o.npz --k 1'
    env = {**environment(), "PYTHON": sys.executable}
    done = subprocess.run(script, shell=True, env=env, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines()[-1].startswith("dmlcpu: ")
    assert "Listing(" not in done.stderr
