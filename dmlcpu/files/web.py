"""Requests to web servers, as fsspec makes them: tried again, ended in time, and with answers of bounded length."""

import contextlib
import contextvars
import email.utils
import errno
import itertools
import logging
import random
import re
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future, wait as wait_for
from contextvars import ContextVar
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")

SILENT = 60  # seconds after which a web server is given up
_BUSY = (429, 503)  # answers after which a request is made again
_LONGEST = 300  # seconds that a server may have a client wait
_DOUBLINGS = 6  # of a pause, at most
_MOST = 64 << 20  # bytes of an answer to a request for all: a list of files
_PIECE = 1 << 16
_GRACE = 0.5  # seconds in which a request that is late can say so itself, with its URL

_log = logging.getLogger("dmlcpu")
_redirects: set[tuple[str | None, str | None]] = set()  # that were said
_busy: set[str] = set()  # servers that had been too busy for all tries: others do not wait again


class RemoteError(OSError):
    """A remote file cannot be read."""


class _Patience(NamedTuple):
    retries: int = 0  # of a request that a server is too busy to answer
    seconds: float | None = None  # that a job's check may take
    end: float | None = None  # of the check at hand


_NO_PATIENCE = _Patience()
_patience: ContextVar[_Patience] = ContextVar("patience", default=_NO_PATIENCE)


@contextlib.contextmanager
def patience(retries: int, seconds: float | None = None) -> Iterator[None]:
    """Retry a block's requests, and end its calls by `in_time` after some seconds."""
    token = _patience.set(_Patience(retries, seconds))
    try:
        yield
    finally:
        _patience.reset(token)


def in_time(call: Callable[[], T]) -> T:
    """Call a function; raise RemoteError if it takes longer than `patience` says, and leave its thread to itself."""
    now = _patience.get()
    if now.seconds is None:
        return call()
    context = contextvars.copy_context()
    context.run(_patience.set, now._replace(end=time.monotonic() + now.seconds))
    result: Future[T] = Future()

    def run() -> None:
        try:
            result.set_result(context.run(call))
        except BaseException as error:
            result.set_exception(error)

    threading.Thread(target=run, name="dmlcpu-remote", daemon=True).start()
    if not wait_for([result], now.seconds + _GRACE).done:
        raise RemoteError(errno.ETIMEDOUT, _late(now.seconds))
    return result.result()


def too_late() -> str | None:
    """Return that the block at hand takes too long, in words; None if it does not."""
    _, seconds, end = _patience.get()
    return _late(seconds) if seconds and end and time.monotonic() >= end else None


def _late(seconds: float) -> str:
    return f"took longer than {seconds:g} s"


def pause(number: int, first: float = 0.1, asked: str | None = None) -> float:
    """Return the seconds before a try, about twice as many each time; `asked`: Retry-After, seconds or a date."""
    own: float = first * 2 ** min(number, _DOUBLINGS) * random.uniform(0.5, 1.5)
    if asked is not None:
        with contextlib.suppress(ValueError):
            date = None if asked.isdecimal() else email.utils.parsedate_to_datetime(asked)
            own += max(0.0, date.timestamp() - time.time() if date else float(asked))
    return own


async def answered(request: Any, handler: Callable[[Any], Coroutine[Any, Any, Any]]) -> Any:
    """Make a request, again while its server is too busy, and bound its answer; a middleware of aiohttp's."""
    import asyncio  # as fsspec has, whose requests these are; files of this machine do not need it

    retries, seconds, end = _patience.get()
    server = f"{request.url.host}:{request.url.port}"
    for number in itertools.count():
        left = seconds if end is None else end - time.monotonic()
        async with asyncio.timeout(left):
            response = await handler(request)
        if response.status not in _BUSY:
            _busy.discard(server)
            break
        wait = pause(number, asked=response.headers.get("Retry-After"))
        is_late = left is not None and wait >= left
        if number >= retries or server in _busy or wait > _LONGEST or is_late:
            _busy.add(server)
            break
        response.release()
        await asyncio.sleep(wait)
    _say_redirect(response)
    response.content = _Bounded(response.content, _most(request, response), end)
    return response


class _Bounded:
    """The body of an answer, of which at most some bytes are read at once, until its time is over."""

    def __init__(self, body: Any, most: int, end: float | None) -> None:
        self._body, self._most, self._end = body, most, end

    def __getattr__(self, name: str) -> Any:
        return getattr(self._body, name)

    async def read(self, size: int = -1) -> bytes:
        import asyncio

        got = bytearray()
        async with asyncio.timeout(None if self._end is None else self._end - time.monotonic()):
            if size >= 0:
                piece: bytes = await self._body.read(size)
                return piece
            while piece := await self._body.read(_PIECE):
                got += piece
                if len(got) > self._most:
                    found = f"the server sent more than {self._most:,} bytes, and {self._most:,} were requested"
                    raise RemoteError(errno.EIO, found)
        return bytes(got)


def _most(request: Any, response: Any) -> int:
    """Return how many bytes an answer may have."""
    asked = re.fullmatch(r"bytes=(\d*)-(\d+)", request.headers.get("Range", ""))
    if asked is None:
        return _MOST
    first, last = int(asked[1] or 1), int(asked[2])
    return last - first + 1 if response.status == 206 else max(_MOST, last + 1)  # the latter of a server without ranges


def _say_redirect(response: Any) -> None:
    """Say, once, that a server sends a request on to another one."""
    if "Location" in response.headers:
        there = response.url.join(type(response.url)(response.headers["Location"]))
        places = response.url.host, there.host
        if places[0] != places[1] and places not in _redirects:
            _redirects.add(places)
            _log.warning("%s redirects to %s", *places)
