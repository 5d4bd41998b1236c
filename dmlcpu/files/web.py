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
from collections.abc import Callable, Coroutine, Generator, Iterator
from concurrent.futures import Future
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
    """Have requests of a block made again so often, and calls by `in_time` end after some seconds."""
    token = _patience.set(_Patience(retries, seconds))
    try:
        yield
    finally:
        _patience.reset(token)


def in_time(call: Callable[[], T]) -> T:
    """Call a function that reads from elsewhere; raise RemoteError if it takes longer than `patience` says.

    It runs in another thread then, which is left to itself if it is late: not every file system can be interrupted.
    """
    now = _patience.get()
    if now.seconds is None:
        return call()
    token = _patience.set(now._replace(end=time.monotonic() + now.seconds))
    context = contextvars.copy_context()
    _patience.reset(token)
    result: Future[T] = Future()

    def run() -> None:
        try:
            result.set_result(context.run(call))
        except BaseException as error:
            result.set_exception(error)

    threading.Thread(target=run, name="dmlcpu-remote", daemon=True).start()
    try:
        return result.result(now.seconds + _GRACE)
    except TimeoutError:
        if result.done():  # the error is the function's own, or it has ended just now
            return result.result()
        raise RemoteError(errno.ETIMEDOUT, _late(now.seconds)) from None


def too_late() -> str | None:
    """Return that the block at hand takes too long, in words; None if it does not."""
    _, seconds, end = _patience.get()
    return _late(seconds) if seconds and end and time.monotonic() >= end else None


def _late(seconds: float) -> str:
    return f"took longer than {seconds:g} s"


def pause(number: int, first: float = 0.1, asked: str | None = None) -> float:
    """Return the seconds before a try: each time about twice as many, and not the same for all who wait.

    asked: the answer's Retry-After, seconds or a date.
    """
    own: float = first * 2 ** min(number, _DOUBLINGS) * random.uniform(0.5, 1.5)
    if asked is None:
        return own
    with contextlib.suppress(ValueError):
        return own + max(0.0, float(asked) if asked.isdecimal() else _until(asked))
    return own


def _until(date: str) -> float:
    return email.utils.parsedate_to_datetime(date).timestamp() - time.time()


async def client(**options: Any) -> "_Session":
    """Return what fsspec makes requests with."""
    import aiohttp

    return _Session(aiohttp.ClientSession(**options))


class _Session:
    """A session of aiohttp's."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self._busy: set[str] = set()  # servers that had been too busy for all tries: others do not wait again

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def get(self, url: Any, **options: Any) -> "_Asked":
        return _Asked(self._answer("GET", url, options))

    def head(self, url: Any, **options: Any) -> "_Asked":
        return _Asked(self._answer("HEAD", url, options))

    async def _answer(self, method: str, url: Any, options: dict[str, Any]) -> Any:
        import asyncio  # as fsspec has: files of this machine need it not

        retries, seconds, end = _patience.get()
        for number in itertools.count():
            left = seconds if end is None else end - time.monotonic()
            if left is not None:
                if left <= 0:
                    raise TimeoutError
                options["timeout"] = self._session.timeout.__class__(left, sock_connect=SILENT, sock_read=SILENT)
            response = await self._session.request(method, url, **options)
            _say_redirect(response)
            server = f"{response.url.host}:{response.url.port}"
            if response.status not in _BUSY:
                self._busy.discard(server)
                break
            wait = pause(number, asked=response.headers.get("Retry-After"))
            is_late = left is not None and wait >= left
            if number >= retries or server in self._busy or wait > _LONGEST or is_late:
                self._busy.add(server)
                break
            response.release()
            await asyncio.sleep(wait)
        response.content = _Bounded(response.content, _most(response, options))
        return response


class _Asked:
    """A request, of which the answer is awaited, or the block of it entered."""

    def __init__(self, answer: Coroutine[Any, Any, Any]) -> None:
        self._answer = answer
        self._response: Any = None

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._answer.__await__()

    async def __aenter__(self) -> Any:
        self._response = await self._answer
        return await self._response.__aenter__()

    async def __aexit__(self, *exception: Any) -> None:
        await self._response.__aexit__(*exception)


class _Bounded:
    """The body of an answer, of which at most some bytes are read at once."""

    def __init__(self, body: Any, most: int) -> None:
        self._body, self._most = body, most

    def __getattr__(self, name: str) -> Any:
        return getattr(self._body, name)

    async def read(self, size: int = -1) -> bytes:
        if size >= 0:
            piece: bytes = await self._body.read(size)
            return piece
        got = bytearray()
        while piece := await self._body.read(_PIECE):
            got += piece
            if len(got) > self._most:
                found = f"the server sent more than {self._most:,} bytes, and {self._most:,} were requested"
                raise RemoteError(errno.EIO, found)
        return bytes(got)


def _most(response: Any, options: dict[str, Any]) -> int:
    """Return how many bytes an answer may have."""
    asked = re.fullmatch(r"bytes=(\d*)-(\d+)", options.get("headers", {}).get("Range", ""))
    if asked is None:
        return _MOST
    first, last = int(asked[1] or 1), int(asked[2])
    return last - first + 1 if response.status == 206 else max(_MOST, last + 1)  # the latter of a server without ranges


def _say_redirect(response: Any) -> None:
    """Say, once, that a server has sent a request on to another one."""
    if response.history:
        places = response.history[0].url.host, response.url.host
        if places[0] != places[1] and places not in _redirects:
            _redirects.add(places)
            _log.warning("%s redirects to %s", *places)
