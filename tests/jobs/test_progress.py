import errno
import io
import sys
from typing import Any

import pytest

from dmlcpu.common.imports import MissingExtraError
from dmlcpu.jobs.progress import Progress


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def follow(progress: Progress) -> None:
    assert list(progress.checking(iter("abc"), 3)) == ["a", "b", "c"]
    progress.say("resuming")
    progress.start(2, 2048, 0)
    progress.finished(1024, failed=False)
    progress.say("failed: b")
    progress.finished(1024, failed=True)
    progress.close()
    progress.close()
    progress.say("the end")


def test_lines_only_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    follow(Progress())
    assert capsys.readouterr() == ("", "dmlcpu: resuming\ndmlcpu: failed: b\ndmlcpu: the end\n")


def test_a_line_now_and_then_where_there_is_no_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter([100, 129, 131, 131, 160, 161, 161])
    monkeypatch.setattr("time.monotonic", lambda: next(clock))
    progress = Progress()
    progress.start(2, 2 << 20, 1)
    progress.read(1 << 10)
    progress.read(1 << 19)
    progress.finished(1 << 20, failed=True)
    progress.finished(1 << 20, failed=False)
    progress.close()
    lines = ["0 of 2 jobs, 1 failed, 513 KB of 2 MB read", "2 of 2 jobs, 2 failed, 2 MB of 2 MB read"]
    assert capsys.readouterr() == ("", "".join(f"dmlcpu: {line}\n" for line in lines))


def test_silence(capsys: pytest.CaptureFixture[str]) -> None:
    follow(Progress(shown=False))
    assert capsys.readouterr() == ("", "")


def test_a_bar_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    follow(Progress())
    text = terminal.getvalue()
    assert "0 of 2 jobs:   0%|" in text
    assert "1 of 2 jobs" in text
    assert "/2.00k [" in text
    assert "B/s]" in text
    lines = [line.rpartition("\r")[2] for line in text.split("\n")]
    assert lines == ["dmlcpu: resuming", "dmlcpu: failed: b", "dmlcpu: the end", ""]


def test_bytes_are_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    progress = Progress()
    progress.start(3, 3000, 0)
    counts = []
    for step in (
        lambda: progress.read(400),
        lambda: progress.read(500),
        lambda: progress.finished(1000, failed=False),
        lambda: progress.read(600),
        lambda: progress.finished(100, failed=False),  # another one, that was done before
        lambda: progress.finished(1900, failed=False),
    ):
        step()
        counts.append(progress._bar.n)
    assert counts == [400, 900, 1000, 1600, 1600, 3000]
    progress.close()
    progress.read(100)


def test_failures_are_counted_on_the_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    progress = Progress()
    progress.start(3, 30, 1)
    progress.finished(10, failed=True)
    progress.finished(10, failed=True)
    progress._bar.refresh()
    assert "2 of 3 jobs, 3 failed:  67%|" in terminal.getvalue()
    progress.close()


def test_jobs_that_read_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    progress = Progress()
    progress.start(1, 0, 0)
    progress.finished(0, failed=False)
    progress.close()


class Closed(Terminal):
    """A terminal that was closed."""

    def write(self, _: str) -> int:
        raise OSError(errno.EIO, "Input/output error")

    def flush(self) -> None:
        raise BrokenPipeError


def test_a_run_goes_on_when_standard_error_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = io.StringIO()
    closed.close()
    for stream in (Closed(), closed, None):
        monkeypatch.setattr(sys, "stderr", stream)
        follow(Progress())


def test_no_tqdm(monkeypatch: pytest.MonkeyPatch) -> None:
    broken: Any = None
    monkeypatch.setitem(sys.modules, "tqdm", broken)
    with pytest.raises(
        MissingExtraError, match=r"needs the package tqdm: pip install '\.\[cli\]' in a clone of dmlcpu"
    ):
        Progress()
