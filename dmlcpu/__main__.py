"""The ``dmlcpu`` command, also as ``python -m dmlcpu``. Signals end it at any moment, even during imports."""

import gc
import os
import signal
import sys
import time

TYPE_CHECKING = False  # until signals have handlers, as little as possible is imported
if TYPE_CHECKING:
    from types import FrameType
    from typing import NoReturn

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_INTERRUPTED = 130
_PATIENCE = 1.0  # seconds for the main thread to clean up after the second signal
_APART = 0.1  # least seconds between two signals: `timeout` sends one to the process and another to its group


def main() -> int:
    """Run the command and return its exit code, or end the process if a signal has come."""
    try:
        for number in _SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, _interrupt)
        _watch()
        from dmlcpu.cli import main as command

        code = command()
        for number in _SIGNALS:
            if signal.getsignal(number) is _interrupt:
                signal.signal(number, _end)
    except KeyboardInterrupt:
        _end()
    if code == _INTERRUPTED:
        os._exit(code)  # a thread may wait for a file, and Python would wait for the thread
    gc.freeze()  # otherwise Python collects all modules when it exits, which took 0.15 to 0.3 s of CPU
    return code


def _interrupt(_number: int, frame: "FrameType | None") -> None:
    """Raise KeyboardInterrupt; during an import end at once, as some modules cannot be imported in part."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            _end()
        frame = frame.f_back
    raise KeyboardInterrupt


def _watch() -> None:
    """End the process soon after the second signal, whatever the main thread waits for or computes."""
    import threading

    while (file := os.open(os.devnull, os.O_RDWR)) <= 2:  # a closed standard stream: no pipe may take its number
        pass
    os.close(file)
    read, write = os.pipe()
    if os.name != "nt":
        os.set_blocking(write, False)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)

    def watch() -> None:
        first = 0.0
        while True:
            if any(number in _SIGNALS for number in os.read(read, 64)):
                if first and time.monotonic() - first > _APART:
                    break
                first = first or time.monotonic()
        time.sleep(_PATIENCE)
        _end()

    threading.Thread(target=watch, name="dmlcpu-signals", daemon=True).start()


def _end(*_: object) -> "NoReturn":
    """End the process."""
    try:
        os.write(2, b"dmlcpu: interrupted\n")
    finally:
        os._exit(_INTERRUPTED)


if __name__ == "__main__":
    sys.exit(main())
