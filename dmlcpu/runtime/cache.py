"""Compiled kernels on disk; a damaged file is noticed before any of it is used.

Numba unpickles whatever its files hold: one that was cut short fails every call, and a flipped bit may run as machine
code. Two processes that save at once may also give two entries one number. Here the name of an entry's file follows
from what it is the code for, so there is neither an index nor a number. The file holds

- a digest of all that follows,
- a digest of what must be the same when it is used: Numba's version, the source, the format, the file's name,
- the machine code, pickled by Numba.
"""

import functools
import hashlib
import logging
import os
import pickle
import stat
import uuid
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
from numba.core.caching import CompileResultCacheImpl, FunctionCache
from numba.core.runtime import rtsys
from numba.core.serialize import dumps

from dmlcpu.runtime.uninterrupted import say

_log = logging.getLogger("dmlcpu")
_DIGEST_BYTES = 32
_FORMAT = 2  # of what an entry is made of
_warned = _warned_of_others = False


class _Entry(CompileResultCacheImpl):  # type: ignore[misc]
    """What an entry is made of: all that Numba saves, but for the environments of helpers that have no constants.

    An environment is for Python objects, which no kernel has. To load one, Numba imports the helper's module; for `min`
    in a kernel, that module may import SciPy.
    """

    def reduce(self, data: Any) -> Any:
        """Return what is pickled."""
        *kept, environments = data._reduce()
        return (*kept, tuple(each for each in environments if each.consts))


class KernelCache(FunctionCache):  # type: ignore[misc]
    """Numba's cache of one function, with other files; it is the ``_cache`` of a dispatcher.

    Numba raises RuntimeError if there is no folder that can be written to.
    """

    _impl_class = _Entry

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        source = self._impl.locator.get_source_stamp()
        self._cache_file = Files(Path(self.cache_path), self._impl.filename_base, (numba.__version__, source, _FORMAT))

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return what was compiled for a signature before, or None.

        Numba's own method first loads all that the compiler knows. That takes 0.4 s of a first call's 0.5 s, more with
        SciPy; before it compiles, Numba does it anyway. Machine code calls only Numba's runtime.
        """
        rtsys.initialize(target_context)
        found = None
        with self._guard_against_spurious_io_errors():
            found = self._load_overload(sig, target_context)
        if found is None:
            say(logging.INFO, "compiling %s for %s", self._label(), sig)
        return found

    def save_overload(self, sig: Any, data: Any) -> None:
        """Save what was compiled, if that is possible."""
        try:
            super().save_overload(sig, data)
        except OSError as error:  # a full disk, a folder that has gone: the kernel in memory is as good
            _log.debug("a compiled kernel could not be saved (%s)", error)
        else:
            say(logging.INFO, "compiled %s, saved in %s", self._label(), self.cache_path)

    def _label(self) -> str:
        return f"{self._py_func.__module__}.{self._py_func.__name__}"


class Files:
    """The files of a function's entries, whose names begin with `base`; an entry saved with another state is stale."""

    def __init__(self, folder: Path, base: str, state: object) -> None:
        self._folder, self._base, self._state = folder, base, state

    def path(self, key: object) -> Path:
        """Return the path of a key's entry; the texts of Numba's types distinguish keys."""
        return self._folder / f"{self._base}.{_digest(repr(key).encode()).hex()[:16]}.nbc"

    def _header(self, path: Path) -> bytes:
        return _digest(repr((self._state, path.name)).encode())

    def load(self, key: object) -> Any:
        """Return what was saved with this key; None if there is nothing, or if it is stale or damaged."""
        path = self.path(key)
        try:
            content = memoryview(path.read_bytes())
        except FileNotFoundError:
            return None
        except OSError as error:
            if os.name == "nt" and isinstance(error, PermissionError):
                raise  # Windows refuses while another process saves the file; Numba takes that for missing
            return _report(path, f"it cannot be read ({error.strerror})")
        if content[:_DIGEST_BYTES] != _digest(content[_DIGEST_BYTES:]):
            return _report(path, "its bytes are not those that were written: it was cut short or altered")
        if content[_DIGEST_BYTES : 2 * _DIGEST_BYTES] != self._header(path):
            return None
        _check(self._folder)
        try:
            return pickle.loads(content[2 * _DIGEST_BYTES :])
        except Exception as error:  # the file is whole, but names other versions of libraries
            return _report(path, f"it cannot be unpickled ({error!r})")

    def save(self, key: object, data: object) -> None:
        """Save data with a key; a process that loads it meanwhile finds the old file or all of the new one."""
        path = self.path(key)
        content = self._header(path) + dumps(data)
        unfinished = path.with_name(f"{path.name}.{uuid.uuid4().hex[:8]}.tmp")
        try:
            unfinished.write_bytes(_digest(content) + content)
            os.replace(unfinished, path)
        finally:
            unfinished.unlink(missing_ok=True)

    def flush(self) -> None:
        """Forget all entries, as Numba does before it compiles a function once more."""
        for path in self._folder.glob(f"{self._base}.*.nbc"):
            path.unlink(missing_ok=True)


def exposed(folder: str | os.PathLike[str]) -> str | None:
    """Return the folder that lets other users put files into a cache, whose code would run; None: there is none.

    The cache's own, if it is not the user's, root's or the package's owner's, or one around it that all may write to.
    """
    if not hasattr(os, "geteuid"):
        return None
    path = Path(os.path.realpath(folder))
    for place in (path, *path.parents):
        if not place.exists():
            continue
        status = os.stat(place)
        keeps = status.st_mode & stat.S_ISVTX and place != path  # others' folders in it stay theirs, as in /tmp
        is_strange = place == path and status.st_uid not in (0, os.geteuid(), os.stat(__file__).st_uid)
        if is_strange or (status.st_mode & stat.S_IWOTH and not keeps):
            return str(place)
    return None


@functools.cache
def _check(folder: Path) -> None:
    """Warn, once in a process, of a folder that others may write to."""
    global _warned_of_others
    if not _warned_of_others and (place := exposed(folder)) is not None:
        _warned_of_others = True
        found = f"others may write to {place}: compiled kernels in {folder} may be theirs, and they run"
        warnings.warn(
            f"{found}. Set NUMBA_CACHE_DIR to a folder that only you can write to.", RuntimeWarning, stacklevel=2
        )


def _digest(content: bytes | memoryview) -> bytes:
    return hashlib.sha256(content).digest()


def _report(path: Path, damage: str) -> None:
    """Report damage: in a warning for the first file of this process, in the log for others."""
    global _warned
    message = f"the compiled kernel in {path} cannot be used: {damage}. It is compiled anew"
    if _warned:
        _log.debug(message)
    else:
        _warned = True  # before the warning, which may be raised as an error
        warnings.warn(f"{message}, as others will be without another warning.", RuntimeWarning, stacklevel=2)
