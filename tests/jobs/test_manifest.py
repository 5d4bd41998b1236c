import errno
import json
import os
import queue
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from job_files import contents, environment

from dmlcpu.batch import ManifestError
from dmlcpu.jobs.manifest import Manifest

HEADER = '{"dmlcpu": "manifest", "version": 1}\n'
POSIX = pytest.mark.skipif(sys.platform == "win32", reason="of POSIX")


def saved(path: Path, again: set[str] | None = None, **outcomes: str) -> None:
    manifest = Manifest(path)
    manifest.begin(again or set())
    for id_, outcome in outcomes.items():
        manifest.record({"id": id_, "outcome": outcome})
    assert manifest.lines is not None
    assert manifest.lines.error is None
    manifest.close()


def recorded(path: Path) -> dict[str, str]:
    return {id_: record["outcome"] for id_, record in Manifest(path, lock=False).records.items()}


def test_outcomes_are_found_again(tmp_path: Path) -> None:
    path = tmp_path / "new" / "manifest"
    saved(path, a="done", b="failed")
    place = f'"place": {path.stat().st_ino}'
    lines = [
        f'{{"id": "{id_}", "outcome": "{outcome}", {place}}}\n' for id_, outcome in (("a", "done"), ("b", "failed"))
    ]
    assert path.read_text() == "".join([HEADER, *lines])
    assert recorded(path) == {"a": "done", "b": "failed"}
    assert [entry.name for entry in path.parent.iterdir()] == ["manifest"]


def test_a_job_that_is_done_and_starts_again_has_no_record_until_its_outcome(tmp_path: Path) -> None:
    path = tmp_path / "manifest"
    saved(path, a="done", b="done")
    before = path.read_text()
    manifest = Manifest(path)
    manifest.begin({"a", "c"})
    assert path.read_text() == before + '{"id": "a", "outcome": "started"}\n'
    assert recorded(path) == {"b": "done"}
    manifest.record({"id": "a", "outcome": "failed"})
    assert recorded(path) == {"a": "failed", "b": "done"}
    manifest.close()


def test_a_manifest_of_before_goes_on(tmp_path: Path) -> None:
    """Without lines of jobs that have started."""
    path = tmp_path / "manifest"
    path.write_text(f'{HEADER}{{"id": "a", "outcome": "done"}}\n{{"id": "b", "outcome": "failed"}}\n')
    saved(path, {"b"}, b="done")
    assert recorded(path) == {"a": "done", "b": "done"}


def test_a_manifest_that_is_only_read_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "manifest"
    saved(path, a="done")
    held = Manifest(path)
    looked = Manifest(path, lock=False)
    assert looked.records == held.records
    looked.close()
    held.close()
    missing = Manifest(tmp_path / "no" / "manifest", lock=False)
    assert missing.records == {}
    missing.close()
    assert not (tmp_path / "no").exists()


@pytest.mark.parametrize("line", ["", '{"id": "b", "outcome": "started"}\n'])
def test_a_job_that_has_failed_and_starts_again_has_failed_until_its_outcome(tmp_path: Path, line: str) -> None:
    path = tmp_path / "manifest"
    saved(path, a="failed", b="failed", c="done")
    saved(path, {"a", "b"})  # a run that was ended before any job
    with path.open("a") as file:
        file.write(line)
    assert recorded(path) == {"a": "failed", "b": "failed", "c": "done"}
    saved(path, {"a", "b"}, a="done")
    assert recorded(path) == {"a": "done", "b": "failed", "c": "done"}


@POSIX
def test_a_manifest_that_is_removed_during_a_run_is_an_error(tmp_path: Path) -> None:
    manifest = Manifest(tmp_path / "manifest")
    manifest.begin(set())
    (tmp_path / "manifest").unlink()
    manifest.record({"id": "a", "outcome": "done"})
    assert manifest.lines is not None
    manifest.lines.sync()
    assert manifest.lines.error is not None
    assert manifest.lines.error.strerror == "the file was removed during the run"
    manifest.close()


@POSIX
def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "manifest").symlink_to("elsewhere/real")
    saved(tmp_path / "manifest", a="done")
    assert os.readlink(tmp_path / "manifest") == "elsewhere/real"
    assert list(Manifest(tmp_path / "elsewhere" / "real", lock=False).records) == ["a"]
    assert [entry.name for entry in (tmp_path / "elsewhere").iterdir()] == ["real"]


@POSIX
@pytest.mark.parametrize("kind", ["pipe", "device", "folder"])
def test_no_device_is_replaced_and_no_pipe_waited_for(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "manifest"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to(os.devnull)
    with pytest.raises(ManifestError, match="manifest is no regular file; allowed: a file, by --manifest"):
        Manifest(path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["manifest"]


@POSIX
@pytest.mark.parametrize("there", [False, True])
def test_a_file_system_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: bool) -> None:
    path = tmp_path / "manifest"
    if there:
        saved(path, a="done")
    before = contents(tmp_path)

    def flock(file: int, operation: int) -> None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr("fcntl.flock", flock)
    found = r"manifest cannot be locked \(Function not implemented\); allowed: .* that has locks, by --manifest"
    with pytest.raises(ManifestError, match=found):
        Manifest(path).begin(set())
    assert contents(tmp_path) == before


OTHER = "a file that is no manifest of dmlcpu"


@pytest.mark.parametrize(
    ("content", "found"),
    [
        ("notes\n", OTHER),
        ("{}\n", OTHER),
        ('{"op": "top_k"}\n', OTHER),
        ("\n", OTHER),
        ("\x93NUMPY\x01", OTHER),
        ('{"dmlcpu": "manifest", "version": 2}\n', "a manifest of version 2; this release has version 1"),
        ('{"dmlcpu": "manifest"}\n', "a manifest of version null; this release has version 1"),
    ],
)
def test_another_file_is_not_touched(tmp_path: Path, content: str, found: str) -> None:
    path = tmp_path / "manifest"
    path.write_text(content)
    with pytest.raises(ManifestError, match=f"is {found}; allowed: another file, by --manifest"):
        Manifest(path)
    assert path.read_text() == content
    assert [entry.name for entry in tmp_path.iterdir()] == ["manifest"]


def test_an_empty_file_is_a_manifest_without_jobs(tmp_path: Path) -> None:
    (tmp_path / "manifest").touch()
    saved(tmp_path / "manifest", a="done")
    assert (tmp_path / "manifest").read_text().startswith(HEADER)


@pytest.mark.parametrize("torn", ['{"id": "b", "outco', "\0\0\0\0", "[]", '{"id": 3}', "3", '{"id": "b"', b"\xff"])
def test_lines_that_nothing_can_be_made_of_are_passed_over(tmp_path: Path, torn: str | bytes) -> None:
    """A machine that loses power may leave such lines; what is appended to a torn one is whole."""
    path = tmp_path / "manifest"
    saved(path, a="done", c="done")
    header, a, c = path.read_bytes().splitlines(keepends=True)
    for content in (header + a + as_bytes(torn) + b"\n" + c, header + a + c + as_bytes(torn)):
        path.write_bytes(content)
        saved(path, d="done")
        assert sorted(recorded(path)) == ["a", "c", "d"]
        assert path.read_bytes().startswith(content)


def as_bytes(text: str | bytes) -> bytes:
    return text.encode() if isinstance(text, str) else text


def test_the_last_line_of_a_job_counts(tmp_path: Path) -> None:
    path = tmp_path / "manifest"
    path.write_text(f'{HEADER}{{"id": "a", "outcome": "failed"}}\n{{"id": "a", "outcome": "done"}}\n')
    assert recorded(path) == {"a": "done"}


@POSIX
def test_a_second_run_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "manifest"
    first, second, third = Manifest(path), Manifest(path), Manifest(path)
    assert list(tmp_path.iterdir()) == []  # a run that finds faults leaves nothing
    first.begin(set())
    with pytest.raises(ManifestError, match="manifest is in use by another run"):
        second.begin(set())
    with pytest.raises(ManifestError, match="manifest is in use by another run"):
        Manifest(path)
    first.close()
    with pytest.raises(ManifestError, match="manifest is in use by another run"):
        third.begin(set())  # it does not know the outcomes of the first
    Manifest(path).close()


@POSIX
def test_closing_unlocks_a_file_that_a_forked_process_has_open(tmp_path: Path) -> None:
    manifest = Manifest(tmp_path / "manifest")
    manifest.begin(set())
    assert manifest.lines is not None
    argv = [sys.executable, "-c", "input()"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, pass_fds=[manifest.lines.file]) as forked:
        manifest.close()
        Manifest(tmp_path / "manifest").close()
        forked.communicate(b"\n")


@POSIX
def test_the_lock_of_a_process_that_was_killed_is_free(tmp_path: Path) -> None:
    code = """\
import sys
from pathlib import Path
from dmlcpu.jobs.manifest import Manifest
manifest = Manifest(Path(sys.argv[1]))
manifest.begin(set())
manifest.record({"id": "a", "outcome": "done"})
print("held", flush=True)
sys.stdin.read()
"""
    argv = [sys.executable, "-c", code, str(tmp_path / "manifest")]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment()) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        with pytest.raises(ManifestError, match="in use"):
            Manifest(tmp_path / "manifest")
        process.send_signal(signal.SIGKILL)
        process.wait()
    manifest = Manifest(tmp_path / "manifest")
    assert list(manifest.records) == ["a"]
    manifest.close()
    assert [entry.name for entry in tmp_path.iterdir()] == ["manifest"]


@pytest.mark.parametrize("call", ["write", "fsync"])
def test_done_jobs_do_not_start_again_unless_that_is_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    path = tmp_path / "manifest"
    saved(path, a="done", b="done")
    manifest = Manifest(path)
    with monkeypatch.context() as patch:
        patch.setattr(f"dmlcpu.jobs.lines.os.{call}", fail)
        with pytest.raises(OSError, match="No space left"):
            manifest.begin({"a"})
        manifest.close()
    if call == "write":
        assert recorded(path) == {"a": "done", "b": "done"}


def fail(*_: object) -> None:
    raise OSError(28, "No space left on device")


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere names are Unicode")
def test_outcomes_are_on_the_disk_while_the_run_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    path = tmp_path / "manifest"
    monkeypatch.setattr("dmlcpu.jobs.lines.os.fsync", lambda _: synced.put(path.read_bytes()))
    monkeypatch.setattr("dmlcpu.jobs.lines.Lines.late", 0.01)
    manifest = Manifest(path)
    manifest.begin([])
    manifest.record({"id": "a", "outcome": "done"})
    while b'"a"' not in synced.get(timeout=30):
        pass
    manifest.close()


def test_ids_that_are_not_utf8(tmp_path: Path) -> None:
    name = os.fsdecode(b"\xff.npy")
    saved(tmp_path / "manifest", **{name: "done"})
    manifest = Manifest(tmp_path / "manifest")
    assert list(manifest.records) == [name]
    manifest.close()
    assert json.loads((tmp_path / "manifest").read_text("utf-8").splitlines()[1])["id"] == name
