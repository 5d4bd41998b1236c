"""The command as a process: signals end it at any moment."""

import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import dmlcpu

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="of POSIX")

ROOT = Path(dmlcpu.__file__).parents[1]
INTERRUPTED = "dmlcpu: interrupted\n"


@pytest.fixture(params=[signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
def number(request: pytest.FixtureRequest) -> signal.Signals:
    return signal.Signals(request.param)


@contextmanager
def started(code: str, *argv: object) -> Iterator["subprocess.Popen[str]"]:
    """Start the command after some code has run; in the end it is killed."""
    # A shell may have had SIGINT ignored.
    before = "import os, signal, sys\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
    after = "\nfrom dmlcpu.__main__ import main\nsys.exit(main())"
    with subprocess.Popen(
        [sys.executable, "-c", before + textwrap.dedent(code) + after, *map(str, argv)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


IMPORTING = """
class Finder:
    def find_spec(self, name, *_):
        if name == {module!r}:
            os.kill(os.getpid(), {number})

sys.meta_path.insert(0, Finder())
"""


@pytest.mark.parametrize("module", ["threading", "dmlcpu.cli", "argparse", "numpy", "numba"])
def test_signals_while_python_imports(number: signal.Signals, module: str) -> None:
    with started(IMPORTING.format(module=module, number=int(number)), "info") as process:
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (130, "", INTERRUPTED)


def test_signals_that_are_ignored_stay_so() -> None:
    """A command in the background of a script goes on after Ctrl+C."""
    code = IMPORTING.format(module="argparse", number=int(signal.SIGINT))
    with started(code + "signal.signal(signal.SIGINT, signal.SIG_IGN)\n", "--version") as process:
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (0, f"dmlcpu {dmlcpu.__version__}\n", "")


@pytest.fixture
def large(tmp_path: Path) -> Iterator[Path]:
    np.save(tmp_path / "x.npy", np.zeros((1 << 10, 1 << 10), np.float32))
    return tmp_path / "x.npy"


# A thread reads without end. The main thread waits, and no signal interrupts it: a long call waits so.
STUCK = {
    "thread": """
        from dmlcpu.jobs.step import Step
        def read(step):
            print("stuck", flush=True)
            os.read(os.pipe()[0], 1)
        Step.read = read
    """,
    "main": """
        import ctypes
        from dmlcpu.jobs.step import Step
        libc, mutex = ctypes.CDLL(None), ctypes.create_string_buffer(256)
        def compute(step, stopping):
            libc.pthread_mutex_lock(mutex)
            print("stuck", flush=True)
            libc.pthread_mutex_lock(mutex)
        Step.compute = compute
    """,
}


@pytest.mark.parametrize(("where", "number"), [("thread", signal.SIGTERM), ("main", signal.SIGINT)])
def test_the_second_signal_ends_what_does_not_end(large: Path, number: signal.Signals, where: str) -> None:
    with started(STUCK[where], "top-k", large, "-o", large.with_name("y.npz"), "--k", 1) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "stuck\n"
        process.send_signal(number)
        asked = f"dmlcpu: {number.name}: finishing the running jobs; send it again to stop at once\n"
        if where == "thread":
            assert process.stderr is not None
            assert process.stderr.readline() == asked
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.2)
        process.send_signal(number)
        _, err = process.communicate(timeout=10)
    counts = "dmlcpu: 0 done, 0 failed, 1 not run; without a manifest the same run again runs all\n"
    last = counts + INTERRUPTED if where == "thread" else INTERRUPTED  # a main thread that hangs prints no counts
    assert (process.returncode, err.removeprefix(asked)) == (130, last)
    assert [path.name for path in large.parent.iterdir()] == ["x.npy"]
