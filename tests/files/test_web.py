"""Web servers that are busy, slow, endless, or send on to others."""

import email.utils
import itertools
import logging
import time
import tracemalloc
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path

import numpy as np
import pytest
from web_server import Server, serving
from writing import check_reads

from dmlcpu.files import identity, open_source, web
from dmlcpu.files.remote import matching

pytest.importorskip("fsspec")
pytest.importorskip("aiohttp")

ARRAY = np.arange(6000, dtype="f4").reshape(60, 100)
BUSY = [(503, ""), (429, "0"), (503, "nonsense"), (429, "")]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    np.save(tmp_path / "x.npy", ARRAY)
    with serving(tmp_path) as running:
        yield running


def test_a_busy_server_is_asked_again(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"{server.url}/x.npy"
    monkeypatch.setattr(web, "pause", lambda number, asked: 0.001 * number)
    with web.patience(4):
        server.busy = [*BUSY]
        before = identity(url, content=False)
        server.busy = [*BUSY]
        with open_source(url) as source:
            server.busy = [*BUSY]
            np.testing.assert_array_equal(source.read(), ARRAY)
        server.busy = [*BUSY]
        assert matching(f"{server.url}/*.npy") == [url]
        server.busy = BUSY * 20
        with pytest.raises(OSError, match=r"reading failed \((503|429)"):
            identity(url, content=False)
        left = len(server.busy)
        for _ in range(3):
            with pytest.raises(OSError, match="reading failed"):
                identity(url, content=False)
        assert left - len(server.busy) <= 6  # it was too busy for all tries: others do not wait so long
        server.busy = []
        assert identity(url, content=False) == before
        server.busy = [*BUSY]
        assert identity(url, content=False) == before
    server.busy = [*BUSY]
    with pytest.raises(OSError, match="reading failed"):
        identity(url, content=False)


def test_a_server_says_when_to_come_again(server: Server) -> None:
    server.busy = [(429, "1")]
    with web.patience(1):
        check_reads(f"{server.url}/x.npy", ARRAY)
    times = [when for when, _ in server.asked]
    assert times[1] - times[0] >= 1
    server.busy, server.asked = [(429, "999")] * 2, []
    begun = time.monotonic()
    with web.patience(1), pytest.raises(OSError, match=r"reading failed \(429"):
        identity(f"{server.url}/x.npy", content=False)
    assert time.monotonic() - begun < 9


def test_pauses() -> None:
    for number, (least, most) in enumerate([(0.05, 0.15), (0.1, 0.3), (0.2, 0.6)]):
        found = {web.pause(number) for _ in range(50)}
        assert len(found) > 10
        assert least <= min(found) <= max(found) <= most
    assert web.pause(1000) < 10
    assert 7 < web.pause(0, asked="7") < 8
    assert 3500 < web.pause(0, asked=email.utils.formatdate(time.time() + 3600)) < 3602
    assert web.pause(0, asked=email.utils.formatdate(time.time() - 3600)) < 1
    assert web.pause(0, asked="soon") < 1
    assert web.pause(2, first=10) > 19


def test_a_slow_answer_is_given_up(server: Server) -> None:
    server.slow = "/x.npy"
    with web.patience(3, 0.5), pytest.raises(OSError, match=r"took longer than 0\.5 s"):
        web.in_time(lambda: open_source(f"{server.url}/x.npy"))
    assert len(server.asked) < 5
    server.slow = ""
    with web.patience(3, 30):
        web.in_time(lambda: check_reads(f"{server.url}/x.npy", ARRAY))


def test_a_call_that_ends_just_when_it_is_late(monkeypatch: pytest.MonkeyPatch) -> None:
    class Late(Future[int]):
        def result(self, timeout: float | None = None) -> int:
            found = super().result()
            if timeout is not None:
                raise TimeoutError
            return found

    monkeypatch.setattr(web, "Future", Late)
    with web.patience(0, 30):
        assert web.in_time(lambda: 3) == 3
        with pytest.raises(ZeroDivisionError):
            web.in_time(lambda: 1 // 0)


def test_a_timeout_of_the_calls_own_is_its_error() -> None:
    def call() -> None:
        raise TimeoutError("its own")

    with web.patience(0, 30), pytest.raises(TimeoutError, match="its own"):
        web.in_time(call)


def test_an_endless_answer_takes_no_memory(server: Server) -> None:
    server.endless = True
    tracemalloc.start()
    try:
        with pytest.raises(OSError, match=r"the server sent more than .* bytes, and .* were requested"):
            open_source(f"{server.url}/x.npy")
        assert tracemalloc.get_traced_memory()[1] < 20 << 20
    finally:
        tracemalloc.stop()


def test_a_server_that_sends_on_to_another_one_is_said_once(
    tmp_path: Path, server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    with serving(tmp_path) as other, caplog.at_level(logging.WARNING, "dmlcpu"):
        other.elsewhere = server.url.replace("127.0.0.1", "localhost")
        for _ in range(2):
            check_reads(f"http://user:word@{other.url.partition('//')[2]}/x.npy?key=1", ARRAY)
        other.elsewhere = server.url  # the same machine
        check_reads(f"{other.url}/x.npy", ARRAY)
    assert [record.getMessage() for record in caplog.records] == ["127.0.0.1 redirects to localhost"]
    assert not any("word" in path for _, path in itertools.chain(server.asked, other.asked))
