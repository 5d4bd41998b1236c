"""Files of remote file systems (``s3://``, ``gs://``, ``https://`` and others) that fsspec reads.

Passwords and other settings come from fsspec and the packages it uses. Jobs have none.
"""

import contextlib
import errno
import hashlib
import io
import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any

import numpy as np

from dmlcpu.common.arguments import Array
from dmlcpu.common.cleanup import OnFailure
from dmlcpu.common.imports import MissingExtraError, optional
from dmlcpu.common.secrets import without_secrets
from dmlcpu.files import web
from dmlcpu.files.base import FileError, Format
from dmlcpu.files.web import RemoteError as RemoteError

_URL = re.compile(r"([a-z][a-z0-9+.-]*)://", re.IGNORECASE)
_LOCAL = re.compile(r"^(file|local)://", re.IGNORECASE)
# File systems that read from another one, which follows after `::` in a chained URL; the first ones keep copies.
_COPIES = ("simplecache", "filecache", "blockcache", "cached")
_LINKS = (*_COPIES, "zip", "tar", "libarchive", "dir")
_NAME = "::"  # between the parts of a chained URL, and between a file and the name of an array in it
PIECE = 4 << 20  # bytes of one request, at most
# What file systems report on a file that differs when its content does.
_VERSIONS = (
    *("ETag", "etag", "Last-Modified", "LastModified", "last_modified", "VersionId", "generation", "updated", "mtime"),
    *("modificationTime", "modify", "created", "ino", "Content-MD5", "md5Hash", "crc32c", "Digest", "sha", "CRC"),
)


def is_remote(path: str | os.PathLike[str]) -> bool:
    """Return whether a path is a URL of another file system than the machine's own."""
    text = os.fspath(path)
    if ":" not in text:  # a job looks at its few paths some ten times each
        return False
    return (_URL.match(text) is not None and _LOCAL.match(text) is None) or len(_chain(text)[0]) > 1


def _chain(path: str) -> tuple[Sequence[str], str | None]:
    """Return the parts of a chained URL, which may be one, and the name of an array that follows."""
    if _NAME not in path:
        return [path], None
    parts, links = path.split(_NAME), 0
    while links < len(parts) - 1:
        protocol, separator, _ = parts[links].partition("://")
        if protocol not in (_LINKS if separator else _COPIES):
            break
        links += 1
    if not links:
        file, _, name = path.rpartition(_NAME)
        return [file], name
    return parts[: links + 1], _NAME.join(parts[links + 1 :]) or None


def file_and_name(path: str) -> tuple[str, str | None]:
    """Split FILE::NAME, where FILE may be a chained URL; without a name the second is None."""
    parts, name = _chain(path)
    return _NAME.join(parts), name


def base_of(path: str) -> str:
    """Return the file of this machine that a chained URL reads from; another path as it is."""
    parts = _chain(path)[0] if _NAME in path else ()
    return path if len(parts) < 2 or is_remote(parts[-1]) else local(parts[-1])


def local(path: str) -> str:
    """Return a path without ``file://``; another one as it is."""
    return _LOCAL.sub("", path) if ":" in path else path


def located(directory: str | os.PathLike[str], path: str) -> str:
    """Return where a path is that is relative to a directory: only the end of a chained URL may be."""
    if not is_remote(path):
        return os.path.join(directory, local(path))
    parts, _ = _chain(path)
    if len(parts) == 1:
        return path
    last = parts[-1] if is_remote(parts[-1]) else os.path.realpath(located(directory, parts[-1]))
    return _NAME.join([*parts[:-1], last])


def is_web(path: str) -> bool:
    """Return whether a URL is of a web server, which has no list of files."""
    return re.match("https?://", path, re.IGNORECASE) is not None


def without_query(path: str) -> str:
    """Return a web address without what follows ``?`` or ``#``; another path as it is."""
    return re.split("[?#]", path, maxsplit=1)[0] if is_web(path) else path


def naming(path: str) -> str:
    """Return the part of a chained URL that names the file that is read; another path as it is."""
    parts, _ = _chain(path)  # caches have no names
    return next((part for part in parts if part.partition("://")[2]), parts[-1]) if len(parts) > 1 else path


def suffix_of(path: str | os.PathLike[str]) -> str:
    """Return the suffix of a file's name, in lower case."""
    text = os.fspath(path)
    return os.path.splitext(without_query(naming(text)) if ":" in text else text)[1].lower()


def matching(pattern: str, directory: str | os.PathLike[str] = "") -> list[str]:
    """Return the URLs that match a pattern with ``*``, in order. Raises OSError, or ImportError without fsspec."""
    system, stripped = file_system(located(directory, pattern))
    url, _ = file_and_name(pattern)
    named = naming(url)
    sign = re.search(r"[*?\[]", named)
    fixed = named[: named.rindex("/", 0, sign.start()) + 1] if sign else named
    root = system._strip_protocol(fixed)
    with reached():
        system.invalidate_cache()
        found = system.glob(stripped)
    for name in found:
        if ".." in re.split(r"[/\\]", name[len(root) :]):  # outputs may be named by it
            raise RemoteError(errno.EPERM, f"the listing names {name!r}, which leads out of {fixed}")
    # fsspec's own way back to URLs loses the host of some systems.
    names = sorted((fixed + name[len(root) :].lstrip("/") if sign else named) for name in found)
    return [url.replace(named, name, 1) for name in names]


def identity(url: str, format_: Format | None, *, content: bool) -> dict[str, int | str]:
    """Return the size, and the version that a server reports or the content's digest, of a file or a whole folder.

    It is the size alone if the server reports no version, and for folders on web servers, which do not list files.
    """
    while (copy := url.partition(_NAME))[0].partition("://")[0] in _COPIES and copy[2]:  # which may be old
        url = copy[2]
    system, path = file_system(url)
    mark = format_.mark if format_ else None
    with reached():
        system.invalidate_cache()
        if mark and is_web(url):
            return {"size": _info(system, f"{path.rstrip('/')}/{mark}")["size"]}
        infos = system.find(path, detail=True) if mark else {path: _info(system, path)}
        if not infos:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), url)
        size = sum(info["size"] for info in infos.values())
        states = [_content(system, name) if content else _version(info) for name, info in sorted(infos.items())]
    if None in states:
        return {"size": size}
    names = [name.removeprefix(path) for name in sorted(infos)]
    digest = hashlib.sha256(repr([*zip(names, states, strict=True)]).encode()).hexdigest() if mark else states[0]
    return {"size": size, "sha256" if content else "version": str(digest)}


def _version(info: dict[str, Any]) -> str | None:
    """Return a digest of what a server reports on a file's version; None if it reports nothing."""
    found = [(name, str(info[name])) for name in _VERSIONS if info.get(name)]
    return hashlib.sha256(repr(found).encode()).hexdigest() if found else None


def _content(system: Any, path: str) -> str:
    with RemoteFile(system, path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def file_system(url: str) -> tuple[Any, str]:
    """Return fsspec's file system of a URL, and the path in it."""
    fsspec = _package("fsspec", url)
    try:
        with reached():
            system, path = fsspec.core.url_to_fs(url, **options_of(url))
    except ImportError as error:  # of a package for this kind of file system
        raise MissingExtraError(f"{url.partition('://')[0]}:// needs another package: {error}") from None
    return system, path


def options_of(url: str) -> dict[str, Any]:
    """Return the options of a URL's file system: by default, web servers may be silent for minutes.

    Nothing is unpacked on the way: an answer would take any amount of memory, before its length is compared.
    """
    parts, _ = _chain(url)
    if len(parts) > 1:  # files of archives, and copies, are those of now: another file system each time
        last = parts[-1].partition("://")[0].lower()
        return {"skip_instance_cache": True, **({last: options_of(parts[-1])} if is_web(parts[-1]) else {})}
    if not is_web(url):
        return {}
    timeout = _package("aiohttp", url).ClientTimeout(sock_connect=web.SILENT, sock_read=web.SILENT)
    settings = _package("fsspec", url).config.conf.get(url.partition("://")[0].lower(), {})
    own = settings.get("client_kwargs", {})
    headers = {"Accept-Encoding": "identity", **own.get("headers", {})}
    more = {"timeout": timeout, "auto_decompress": False, "middlewares": (web.answered,), **own, "headers": headers}
    return {"client_kwargs": more}


def _package(name: str, url: str) -> ModuleType:
    return optional(name, f"{url.partition('://')[0]}:// needs", "remote")


@contextlib.contextmanager
def reached() -> Iterator[None]:
    """Turn the exceptions of file systems and networks, which may be any, into errors of the system."""
    try:
        yield
    except (RemoteError, FileError, FileNotFoundError, ImportError, MemoryError, PermissionError):
        raise
    except Exception as error:
        reason = f"{' '.join(without_secrets(str(error)).split()):.300}" or type(error).__name__
        late = web.too_late()
        raise RemoteError(*((errno.ETIMEDOUT, late) if late else (errno.EIO, f"reading failed ({reason})"))) from error


def _info(system: Any, path: str) -> dict[str, Any]:
    """Return what a file system reports on a file, which includes a size."""
    try:
        info: dict[str, Any] = system.info(path)
    except FileNotFoundError as error:
        cause = error.__cause__  # which fsspec says of web servers whatever went wrong
        if cause is None or not is_web(path) or getattr(cause, "status", None) == 404:
            raise
        raise cause from None
    if info.get("type") == "directory":
        raise RemoteError(errno.EISDIR, "a folder")
    if not isinstance(info.get("size"), int):
        raise RemoteError(errno.EIO, "a file whose size the server does not report")
    return info


class RemoteFile(io.RawIOBase):
    """A remote file that is read by ranges. If the server sends no ranges, it is downloaded to a temporary file."""

    def __init__(self, system: Any, path: str) -> None:
        super().__init__()
        self._system, self._path = system, path
        self._position = 0
        self._file: Any = None
        with reached():
            system.invalidate_cache()
            info = _info(system, path)
            self.size: int = info["size"]
            is_http = is_web(path) and not hasattr(system, "target_protocol")  # of copies
            self._file = system.open(path, "rb", cache_type="none", **({"size": self.size} if is_http else {}))
            if isinstance(self._file, io.BytesIO):  # a file in memory, whose position all share
                self._file = io.BytesIO(self._file.getbuffer())
            self._in_ranges = not is_http or (info.get("partial", True) and self._sends_ranges())

    def _sends_ranges(self) -> bool:
        """Return whether a web server sends the last byte when it is asked for that."""
        try:
            self._file.seek(max(self.size - 1, 0))
            return self.size == 0 or len(self._file.read(1)) == 1
        except ValueError:  # as fsspec says so
            return False

    def read_at(self, offset: int, into: Array) -> int:
        """Read bytes into an array of them, for one thread at a time; return how many, which may be fewer."""
        wanted = min(into.size, PIECE, max(self.size - offset, 0))
        if not wanted:
            return 0
        with reached():
            if offset and not self._in_ranges:  # the beginning, where headers are, needs none
                self._download()
            self._file.seek(offset)
            data = self._file.read(wanted)
        if len(data) > wanted:
            raise RemoteError(errno.EIO, f"the server sent {len(data):,} bytes, and {wanted:,} were requested")
        into[: len(data)] = np.frombuffer(data, np.uint8)
        return len(data)

    def _download(self) -> None:
        """Replace the file by a temporary one with all of it."""
        copy = tempfile.TemporaryFile()  # noqa: SIM115 - it is closed with this file
        with OnFailure(copy.close), self._system.open(self._path, "rb", block_size=0) as stream:
            while piece := stream.read(PIECE):
                copy.write(piece)
                if copy.tell() > self.size:
                    raise RemoteError(errno.EIO, f"it has more than {self.size:,} bytes")
            if copy.tell() < self.size:
                raise RemoteError(errno.EIO, f"it ends after {copy.tell():,} of {self.size:,} bytes")
        self._file.close()
        self._file, self._in_ranges = copy, True

    def readinto(self, buffer: Any) -> int:
        """Read bytes from the position on."""
        got = self.read_at(self._position, np.frombuffer(buffer, np.uint8))
        self._position += got
        return got

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move the position."""
        self._position = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self.size}[whence]
        return self._position

    def readable(self) -> bool:
        """Return True."""
        return True

    seekable = readable

    def close(self) -> None:
        """Close the file."""
        if self._file and not self.closed:
            self._file.close()
        super().close()
