"""Compiled kernels on disk, where a damaged file is noticed before any of it is used.

Numba unpickles whatever its files hold: one that was cut short fails every call, and a flipped bit may run as machine
code. Two processes that save at once may also number two entries alike. Here an entry's file is named by what it is the
code for, so there is neither an index nor a number. The file holds

- a digest of all that follows,
- a digest of what must be the same when it is used: Numba's version, the source,
- a digest of the file's own name, so that no other entry's code is taken for this one's,
- the machine code, pickled by Numba.
"""

import hashlib
import logging
import os
import pickle
import uuid
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
from numba.core.caching import FunctionCache
from numba.core.serialize import dumps

_log = logging.getLogger("dmlcpu")
_DIGEST_BYTES = 32
_warned = False


class KernelCache(FunctionCache):  # type: ignore[misc]
    """Numba's cache of one function, with other files; it is the ``_cache`` of a dispatcher.

    Parameters
    ----------
    function : function
        What is compiled.

    Raises
    ------
    RuntimeError
        There is no folder that can be written to.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        source = self._impl.locator.get_source_stamp()
        self._cache_file = Files(Path(self.cache_path), self._impl.filename_base, (numba.__version__, source))

    def save_overload(self, sig: Any, data: Any) -> None:
        """Save what was compiled, if that is possible."""
        try:
            super().save_overload(sig, data)
        except OSError as error:  # a full disk, a folder that has gone: the kernel in memory is as good
            _log.debug("a compiled kernel could not be saved (%s)", error)


class Files:
    """The files of one function's entries, as Numba's cache uses them.

    Parameters
    ----------
    folder : Path
        Where they are.
    base : str
        How their names begin.
    state : object
        An entry that was saved with another state is stale.
    """

    def __init__(self, folder: Path, base: str, state: object) -> None:
        self._folder = folder
        self._base = base
        self._state = _digest(repr(state).encode())

    def path(self, key: object) -> Path:
        """Return where the entry of a key is; Numba's types are told apart by how they are written."""
        return self._folder / f"{self._base}.{_digest(repr(key).encode()).hex()[:16]}.nbc"

    def load(self, key: object) -> Any:
        """Return what was saved with this key, or None: there is nothing, it is stale or it is damaged."""
        path = self.path(key)
        try:
            content = memoryview(path.read_bytes())
        except FileNotFoundError:
            return None
        except OSError as error:
            if os.name == "nt" and isinstance(error, PermissionError):
                raise  # Windows refuses while another process saves the file; Numba takes that for missing
            return _report(path, f"it cannot be read ({error.strerror})")
        digest, rest = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
        if digest != _digest(rest):
            return _report(path, "its bytes are not those that were written: it was cut short or altered")
        state, name, data = rest[:_DIGEST_BYTES], rest[_DIGEST_BYTES : 2 * _DIGEST_BYTES], rest[2 * _DIGEST_BYTES :]
        if state != self._state:
            return None
        if name != _digest(path.name.encode()):
            return _report(path, "it was written for another kernel or for other types")
        try:
            return pickle.loads(data)
        except Exception as error:  # whole, but of other versions of libraries that are named in it
            return _report(path, f"it cannot be unpickled ({error!r})")

    def save(self, key: object, data: object) -> None:
        """Save data with a key; whoever loads it meanwhile finds the file from before or all of the new one."""
        path = self.path(key)
        content = self._state + _digest(path.name.encode()) + dumps(data)
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


def _digest(content: bytes | memoryview) -> bytes:
    return hashlib.sha256(content).digest()


def _report(path: Path, damage: str) -> None:
    """Say what is wrong with a file: in a warning if it is the first of this process, else in the log."""
    global _warned
    message = f"the compiled kernel in {path} cannot be used: {damage}. It is compiled anew"
    if _warned:
        _log.debug(message)
    else:
        _warned = True  # before the warning, which may be raised as an error
        warnings.warn(f"{message}, as others will be without another warning.", RuntimeWarning, stacklevel=2)
