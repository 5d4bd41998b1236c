"""The command line in forks of one process that has imported it: what it does as a process, without Python's start.

Signals, streams, the current folder and exit codes are as those of any process. What depends on Python's start, as
streams that are closed and variables that Python reads, needs a process of its own.
"""

import atexit
import contextlib
import functools
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from told import without_compiling

import dmlcpu

ROOT = Path(dmlcpu.__file__).parents[1]
COMMAND = "import runpy; runpy.run_module('dmlcpu', run_name='__main__', alter_sys=True)"

# A fork breaks out of the loop: as it is at the end of the script, it ends as any process does.
SERVER = """
import gc, json, os, signal, sys, tempfile
import numpy as np, tqdm, dmlcpu.cli.info, dmlcpu.models.runner
from dmlcpu.batch import plan_jobs, run_jobs
from dmlcpu.runtime import threads

with tempfile.TemporaryDirectory() as folder, threads.use_budget(1):
    np.save(f"{folder}/x.npy", np.ones((4, 9), np.float32))
    job = {"op": "top_k", "inputs": {"x": "x.npy"}, "attrs": {"k": 2}, "output": "y.npz"}
    run_jobs([job], directory=folder)
gc.freeze()  # at its end a fork would look through all that is there
print("ready", flush=True)
while line := sys.stdin.readline():
    if not (child := os.fork()):
        break
    print(child, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
else:
    sys.exit()
asked = json.loads(line)
os.setsid()
signal.alarm(300)  # a test that waits for a command ends
for number, path in enumerate(asked["streams"]):
    os.dup2(os.open(path, os.O_NOCTTY | (os.O_RDWR | os.O_APPEND if number else os.O_RDONLY)), number)
os.chdir(asked["folder"])
os.environ.clear()
os.environ.update(asked["environment"])
sys.argv[1:] = asked["argv"]
exec(asked["code"])
"""

# A program that stands for the command line: with its arguments, environment and streams `answer` runs that.
CLIENT = f"""\
#!{sys.executable} -IS
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as server:
    server.connect(os.environ["COMMANDS"])
    socket.send_fds(server, [json.dumps([sys.argv[1:], dict(os.environ)]).encode()], [0, 1, 2])
    sys.exit(int(server.recv(100)))
"""


class Fork:
    """A command, and the files that it prints into; when it has ended also its exit code, and what it has printed."""

    pid: int
    returncode: int
    stdout: str
    stderr: str

    def __init__(self, out: Path, err: Path) -> None:
        self.out, self.err = out, err


@functools.cache
def _server() -> "subprocess.Popen[str]":
    """Start the process that forks; it ends with this one."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1"}
    environment.pop("PYTHONUNBUFFERED", None)  # it would change which write fails
    server = subprocess.Popen(
        [sys.executable, "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    )
    atexit.register(server.communicate)
    assert server.stdout is not None
    assert server.stdout.readline() == "ready\n"
    return server


def _number(server: "subprocess.Popen[str]") -> int:
    assert server.stdout is not None
    line = server.stdout.readline()
    assert line, "the process that forks has ended"
    return int(line)


@contextlib.contextmanager
def started(
    *argv: object, code: str = COMMAND, stdin: str = os.devnull, stdout: str = "", stderr: str = "", **environment: str
) -> Iterator[Fork]:
    """Start the command line, or other code, and wait for its end; streams are names of files."""
    with tempfile.TemporaryDirectory() as folder:
        fork = Fork(Path(folder, "out"), Path(folder, "err"))
        fork.out.touch()
        fork.err.touch()
        asked = {
            "argv": list(map(str, argv)),
            "code": code,
            "streams": [stdin, stdout or str(fork.out), stderr or str(fork.err)],
            "folder": os.getcwd(),
            "environment": {**os.environ, "PYTHONPATH": str(ROOT), **environment},
        }
        server = _server()
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write(json.dumps(asked) + "\n")
        server.stdin.flush()
        fork.pid = _number(server)
        try:
            yield fork
        finally:
            fork.returncode = _number(server)
            fork.stdout, fork.stderr = fork.out.read_text("utf-8"), without_compiling(fork.err.read_text("utf-8"))


def run(*argv: object, code: str = COMMAND, **options: Any) -> Any:
    """Run the command line, or other code, to its end; elsewhere than on Linux in a process of its own.

    Only `stdin` can be given there.
    """
    if sys.platform == "linux":
        with started(*argv, code=code, **options) as fork:
            pass
        return fork
    words = [sys.executable, "-c", code, *map(str, argv)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    assert set(options) <= {"stdin"}
    with open(options.get("stdin", os.devnull)) as stdin:
        done = subprocess.run(words, stdin=stdin, capture_output=True, encoding="utf-8", env=environment, check=False)
    done.stderr = without_compiling(done.stderr)
    return done


def answer(server: socket.socket) -> None:
    """Run the command line for a `CLIENT`, in the current folder."""
    client, _ = server.accept()
    with client:
        asked, streams, *_ = socket.recv_fds(client, 1 << 20, 3)
        try:
            argv, environment = json.loads(asked)
            names = (f"/proc/{os.getpid()}/fd/{stream}" for stream in streams)
            done = run(*argv, **dict(zip(("stdin", "stdout", "stderr"), names, strict=True)), **environment)
        finally:
            for stream in streams:
                os.close(stream)
        client.send(str(done.returncode).encode())
