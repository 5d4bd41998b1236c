import errno
import json
import os
import queue
import sys
import threading
from pathlib import Path

import pytest

from dmlcpu.jobs.lines import Lines, as_line


def lines_of(path: Path) -> list[object]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def full_disk(monkeypatch: pytest.MonkeyPatch, taken: int) -> list[int]:
    """Let the disk take a number of bytes more, which is returned and can be changed."""
    left = [taken]

    def write(file: int, content: bytes) -> int:
        if not left[0]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written = real(file, content[: left[0]])
        left[0] -= written
        return written

    real = os.write
    monkeypatch.setattr("dmlcpu.jobs.lines.os.write", write)
    return left


def test_lines_are_appended(tmp_path: Path) -> None:
    for number in range(2):
        lines = Lines(tmp_path / "new" / "folder" / "log")
        lines.append({"number": number, "text": "é\n\u2028"})
        lines.close()
        assert lines.error is None
    assert lines_of(tmp_path / "new" / "folder" / "log") == [{"number": n, "text": "é\n\u2028"} for n in range(2)]


def test_each_line_is_there_at_once(tmp_path: Path) -> None:
    lines = Lines(tmp_path / "log")
    lines.append({"a": 1})
    assert lines_of(tmp_path / "log") == [{"a": 1}]
    lines.close()


def test_names_that_are_not_utf8() -> None:
    name = b"\xff\xe9.npy".decode("utf-8", "surrogateescape")
    line = as_line({name: name})
    assert json.loads(line.decode("utf-8")) == {name: name}


def test_a_torn_end_spoils_no_other_line(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b'{"a": 1}\n{"a": ')
    lines = Lines(path)
    lines.append({"a": 2})
    lines.close()
    assert path.read_bytes() == b'{"a": 1}\n{"a": \n{"a": 2}\n'


def test_a_torn_end_is_left_alone_where_nothing_is_appended(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b'{"a": 1}\n')
    Lines(path).close()
    assert path.read_bytes() == b'{"a": 1}\n'


@pytest.mark.parametrize("taken", range(0, 40, 3))
def test_a_disk_that_is_full_for_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, taken: int) -> None:
    """At any moment the file has whole lines; in the end it has all of them."""
    path = tmp_path / "log"
    lines = Lines(path)
    left = full_disk(monkeypatch, taken)
    for number in range(4):
        lines.append({"number": number})
        assert lines_of(path) == [{"number": n} for n in range(len(lines_of(path)))]
        assert path.read_bytes()[-1:] in (b"", b"\n")
    complete = taken >= 4 * 14
    assert (lines.error is None) == complete
    left[0] = 1000
    lines.append({"number": 4})
    assert lines.error is None
    lines.close()
    assert lines_of(path) == [{"number": n} for n in range(5)]


def test_a_disk_that_stays_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = Lines(tmp_path / "log")
    lines.append({"number": 0})
    full_disk(monkeypatch, 5)
    lines.append({"number": 1})
    lines.close()
    assert lines.error is not None
    assert (lines.error.errno, lines.error.filename) == (errno.ENOSPC, str(tmp_path / "log"))
    assert lines_of(tmp_path / "log") == [{"number": 0}]


def test_what_could_not_be_written_is_written_at_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = Lines(tmp_path / "log")
    left = full_disk(monkeypatch, 0)
    lines.append({"number": 0})
    left[0] = 100
    lines.close()
    assert lines.error is None
    assert lines_of(tmp_path / "log") == [{"number": 0}]


def test_what_a_sync_has_lost_stays_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system reports it once: later writes and syncs succeed."""
    lines = Lines(tmp_path / "log")
    lines.append({"number": 0})
    with monkeypatch.context() as patch:
        patch.setattr("dmlcpu.jobs.lines.os.fsync", failing)
        lines.sync()
    lines.append({"number": 1})
    lines.close()
    assert isinstance(lines.error, OSError)
    assert lines.error.errno == errno.EIO


def failing(_: int) -> None:
    raise OSError(errno.EIO, os.strerror(errno.EIO))


def test_a_disk_that_does_not_answer_for_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = Lines(tmp_path / "log")
    with monkeypatch.context() as patch:
        patch.setattr("dmlcpu.jobs.lines.os.fstat", failing)
        lines.append({"number": 0})
        assert lines.error is not None
    lines.close()
    assert lines.error is None
    assert lines_of(tmp_path / "log") == [{"number": 0}]


def test_lines_are_synced_while_none_come(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    monkeypatch.setattr("dmlcpu.jobs.lines.os.fsync", lambda file: synced.put(os.pread(file, 100, 0)))
    monkeypatch.setattr(Lines, "late", 0.01)
    lines = Lines(tmp_path / "log")
    lines.keep_synced()
    for content in (b'{"a": 1}\n', b'{"a": 1}\n{"a": 2}\n'):
        lines.append({"a": content.count(b"\n")})
        assert synced.get(timeout=30) == content
    lines.close()
    assert not any(thread.name == "dmlcpu-manifest" for thread in threading.enumerate())


def test_lines_are_synced_once_at_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr("dmlcpu.jobs.lines.os.fsync", synced.append)
    lines = Lines(tmp_path / "log")
    lines.keep_synced()
    lines.append({"a": 1})
    lines.end()
    lines.close()
    assert len(synced) == 1


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_a_pipe(tmp_path: Path) -> None:
    """As of `--log >(...)`: it cannot be synced."""
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    lines = Lines(tmp_path / "pipe")
    lines.append({"a": 1})
    lines.close()
    assert lines.error is None
    assert os.read(reader, 100) == b'{"a": 1}\n'
    os.close(reader)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_a_pipe_whose_reader_ends(tmp_path: Path) -> None:
    """The lines are lost, and nothing waits for somebody who reads them."""
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    lines = Lines(tmp_path / "pipe")
    lines.append({"a": 1})
    assert os.read(reader, 100) == b'{"a": 1}\n'
    os.close(reader)
    for _ in range(2):
        lines.append({"a": 2})
        assert isinstance(lines.error, BrokenPipeError)
    lines.close()
    assert isinstance(lines.error, BrokenPipeError)
    with pytest.raises(OSError, match="a pipe without a reader"):
        Lines(tmp_path / "pipe")


@pytest.mark.skipif(sys.platform == "win32", reason="of POSIX")
def test_a_process_that_is_started_meanwhile_does_not_have_the_file(tmp_path: Path) -> None:
    lines = Lines(tmp_path / "log")
    assert not os.get_inheritable(lines.file)
    lines.close()
