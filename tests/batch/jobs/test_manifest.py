import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from job_files import environment

from dmlcpu.batch import ManifestError
from dmlcpu.batch.jobs.manifest import Manifest

HEADER = '{"dmlcpu": "manifest", "version": 1}\n'
POSIX = pytest.mark.skipif(sys.platform == "win32", reason="of POSIX")


def saved(path: Path, again: set[str] | None = None, **outcomes: str) -> None:
    manifest = Manifest(path)
    manifest.begin(again or set())
    for id_, outcome in outcomes.items():
        manifest.record(id_, {"outcome": outcome})
    manifest.close()
    assert manifest.error is None


def test_outcomes_are_found_again(tmp_path: Path) -> None:
    path = tmp_path / "new" / "manifest"
    saved(path, a="done", b="failed")
    assert path.read_text() == f'{HEADER}{{"id": "a", "outcome": "done"}}\n{{"id": "b", "outcome": "failed"}}\n'
    manifest = Manifest(path)
    assert manifest.records == {"a": {"id": "a", "outcome": "done"}, "b": {"id": "b", "outcome": "failed"}}
    manifest.close()
    assert [entry.name for entry in path.parent.iterdir()] == ["manifest"]


def test_a_job_that_is_run_again_has_no_record_until_it_is_done(tmp_path: Path) -> None:
    path = tmp_path / "manifest"
    saved(path, a="done", b="done")
    manifest = Manifest(path)
    manifest.begin({"a", "c"})
    assert path.read_text() == f'{HEADER}{{"id": "b", "outcome": "done"}}\n'
    manifest.record("a", {"outcome": "failed"})
    assert path.read_text() == f'{HEADER}{{"id": "b", "outcome": "done"}}\n{{"id": "a", "outcome": "failed"}}\n'
    manifest.close()


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


def test_a_job_that_is_tried_again_has_failed_until_it_has_another_outcome(tmp_path: Path) -> None:
    path = tmp_path / "manifest"
    saved(path, a="failed", b="failed", c="done")
    saved(path, {"a", "b"})  # a run that was ended before any job
    assert {id_: record["outcome"] for id_, record in Manifest(path, lock=False).records.items()} == {
        "a": "failed",
        "b": "failed",
        "c": "done",
    }
    saved(path, {"a", "b"}, a="done")
    assert sorted(path.read_text().splitlines()[1:]) == [
        '{"id": "a", "outcome": "done"}',
        '{"id": "b", "outcome": "failed"}',
        '{"id": "c", "outcome": "done"}',
    ]


def test_a_manifest_that_is_removed_during_a_run_is_written_again(tmp_path: Path) -> None:
    path = tmp_path / "manifest"
    saved(path, a="done")
    manifest = Manifest(path)
    manifest.begin(set())
    manifest.record("b", {"outcome": "done"})
    path.unlink()
    manifest.record("c", {"outcome": "done"})
    manifest.close()
    assert sorted(Manifest(path, lock=False).records) == ["a", "b", "c"]


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


@pytest.mark.parametrize(
    "content", ["notes\n", "{}\n", '{"op": "top_k"}\n', "\n", '{"dmlcpu": "manifest", "version": 2}\n', "\x93NUMPY\x01"]
)
def test_another_file_is_not_touched(tmp_path: Path, content: str) -> None:
    path = tmp_path / "manifest"
    path.write_text(content)
    with pytest.raises(ManifestError, match="is there and no manifest of dmlcpu; allowed: another file, by --manifest"):
        Manifest(path)
    assert path.read_text() == content
    assert [entry.name for entry in tmp_path.iterdir()] == ["manifest"]


def test_an_empty_file_is_a_manifest_without_jobs(tmp_path: Path) -> None:
    (tmp_path / "manifest").touch()
    saved(tmp_path / "manifest", a="done")
    assert (tmp_path / "manifest").read_text().startswith(HEADER)


@pytest.mark.parametrize("torn", ['{"id": "b", "outco', "\0\0\0\0", "[]", '{"id": 3}', "3", '{"id": "b"', b"\xff"])
def test_lines_that_nothing_can_be_made_of(tmp_path: Path, torn: str | bytes) -> None:
    """A machine that loses power may leave such; the other lines count, and the next run drops them."""
    path = tmp_path / "manifest"
    saved(path, a="done", c="done")
    header, a, c = path.read_bytes().splitlines(keepends=True)
    for content in (header + a + as_bytes(torn) + b"\n" + c, header + a + c + as_bytes(torn)):
        path.write_bytes(content)
        manifest = Manifest(path)
        assert sorted(manifest.records) == ["a", "c"]
        manifest.begin(set())
        manifest.close()
        assert path.read_bytes() == header + a + c


def as_bytes(text: str | bytes) -> bytes:
    return text.encode() if isinstance(text, str) else text


def test_the_last_line_of_a_job_counts(tmp_path: Path) -> None:
    path = tmp_path / "manifest"
    path.write_text(f'{HEADER}{{"id": "a", "outcome": "failed"}}\n{{"id": "a", "outcome": "done"}}\n')
    saved(path)
    assert path.read_text() == f'{HEADER}{{"id": "a", "outcome": "done"}}\n'


@POSIX
def test_one_run_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "manifest"
    held = Manifest(path)
    with pytest.raises(ManifestError, match="manifest is in use by another run"):
        Manifest(path)
    held.close()
    Manifest(path).close()
    assert list(tmp_path.iterdir()) == []


@POSIX
def test_the_lock_of_a_process_that_was_killed_is_free(tmp_path: Path) -> None:
    code = """\
import sys
from pathlib import Path
from dmlcpu.batch.jobs.manifest import Manifest
manifest = Manifest(Path(sys.argv[1]))
manifest.begin(set())
manifest.record("a", {"outcome": "done"})
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
    (tmp_path / ".manifest.part").write_text("half of a man")  # it might have been at this
    manifest = Manifest(tmp_path / "manifest")
    assert list(manifest.records) == ["a"]
    manifest.close()
    assert [entry.name for entry in tmp_path.iterdir()] == ["manifest"]


def test_a_manifest_that_cannot_be_written_anew_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "manifest"
    saved(path, a="done", b="done")
    before = path.read_text()
    manifest = Manifest(path)
    monkeypatch.setattr("dmlcpu.batch.jobs.manifest.os.fsync", fail)
    with pytest.raises(OSError, match="No space left"):
        manifest.begin({"a"})
    manifest.close()
    assert path.read_text() == before
    monkeypatch.undo()
    Manifest(path).close()
    assert [entry.name for entry in tmp_path.iterdir()] == ["manifest"]


def fail(*_: object) -> None:
    raise OSError(28, "No space left on device")


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere names are Unicode")
def test_ids_that_are_not_utf8(tmp_path: Path) -> None:
    name = os.fsdecode(b"\xff.npy")
    saved(tmp_path / "manifest", **{name: "done"})
    manifest = Manifest(tmp_path / "manifest")
    assert list(manifest.records) == [name]
    manifest.close()
    assert json.loads((tmp_path / "manifest").read_text("utf-8").splitlines()[1])["id"] == name
