"""Claims to what one caller at a time may have; the others do not wait.

A lock that all callers try to acquire would stay taken after an interrupt (a signal handler that raises) right after
`acquire`. A ``with`` takes and releases a lock in C, with no handler in between. So each caller takes its own lock with
``with``, and the oldest held lock counts.
"""

import threading
import weakref


class Claims:
    """The locks of all callers, in the order of their claims; one that a caller has lost does not count."""

    def __init__(self) -> None:
        self._locks: dict[weakref.ref[threading.Lock], None] = {}

    def grant(self, mine: threading.Lock) -> bool:
        """Return whether the caller, which holds this new lock with ``with``, is the only one."""
        self._locks[weakref.ref(mine)] = None
        for reference in list(self._locks):
            lock = reference()
            if lock is not None and lock.locked():
                return lock is mine
            self._locks.pop(reference, None)
        return False  # the caller has released its own
