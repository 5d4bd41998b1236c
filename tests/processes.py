"""Fresh processes, for tests of Python's start and of settings that last as long as it runs."""

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager

# Else Python looks for garbage in Numba's modules, several times, before it ends: that took 0.3 s of 0.85.
_QUICK_END = "import atexit, gc; atexit.register(gc.freeze)\n"


def run(code, **environment):
    """Run Python code in a fresh process in which warnings are errors; return its output."""
    process = subprocess.run(
        [sys.executable, "-W", "error", "-c", _QUICK_END + textwrap.dedent(code)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert process.returncode == 0, f"exit code {process.returncode}\n{process.stderr}"
    return process.stdout


@contextmanager
def forks_of(start, **settings) -> Iterator[Callable[..., str]]:
    """Yield a function like `run` that runs code in a fork of a process, which has run `start`.

    So imports are shared, but what has been imported has read the environment already. Where a process cannot be
    forked, each code has a process of its own.
    """
    start = textwrap.dedent(start)
    if not hasattr(os, "fork"):
        yield lambda code, **environment: run(start + textwrap.dedent(code), **settings, **environment)
        return

    def run_fork(code, **environment):
        process.stdin.write(json.dumps([textwrap.dedent(code), environment]) + "\n")
        process.stdin.flush()
        answer = process.stdout.readline()
        assert answer, "the process that is forked has ended"
        status, out, err = json.loads(answer)
        assert status == 0, f"status {status}\n{err}"
        return out

    # BLAS would start threads, and then Python warns of forks.
    with subprocess.Popen(
        [sys.executable, "-W", "error", "-c", _QUICK_END + start + FORKS],
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1", **settings},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        yield run_fork


def run_each(codes, start, **environment):
    """Run each code in a fork of one fresh process that has run `start`; return their outputs."""
    with forks_of(start, **environment) as run_fork:
        return [run_fork(code) for code in codes]


# The process itself stays in the loop. Its forks end without Python's clean-up, which would take 0.2 s in each.
FORKS = """
def _serve():
    import gc, json, os, signal, sys, tempfile, traceback
    gc.freeze()
    for line in iter(sys.stdin.readline, ""):
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
            child = os.fork()
            if child == 0:
                signal.alarm(300)
                os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
                os.dup2(out.fileno(), 1)
                os.dup2(err.fileno(), 2)
                code, environment = json.loads(line)
                os.environ.update(environment)
                try:
                    exec(code, globals())
                    sys.stdout.flush()
                except BaseException:
                    traceback.print_exc()
                    os._exit(1)
                os._exit(0)
            status = os.waitpid(child, 0)[1]
            out.seek(0)
            err.seek(0)
            print(json.dumps([status, out.read(), err.read()]), flush=True)

_serve()
"""
