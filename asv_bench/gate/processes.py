"""The processes that are timed: requests and answers over pipes, a line of JSON each."""

import contextlib
import json
import subprocess

from .changes import GateError


class Process:
    """A process of a side (`child.py`). It lives until `close`."""

    def __init__(self, name, side):
        self.name = name
        self._process = subprocess.Popen(
            side.command,
            env=side.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )

    def send(self, action, **arguments):
        with contextlib.suppress(BrokenPipeError):  # `hear` tells that the process has ended
            print(json.dumps({"do": action, **arguments}), file=self._process.stdin, flush=True)

    def hear(self):
        line = self._process.stdout.readline()
        if not line:
            raise GateError(f"the process of {self.name} ended with status {self._process.wait()}")
        return json.loads(line)

    def ask(self, action, **arguments):
        self.send(action, **arguments)
        return self.hear()

    def close(self):
        with self._process:
            self._process.kill()


@contextlib.contextmanager
def started(sides):
    """Start a process for each name and side, in this order, within the context."""
    with contextlib.ExitStack() as stack:
        processes = {}
        for name, side in sides.items():
            processes[name] = Process(name, side)
            stack.callback(processes[name].close)
        yield processes


def ask_all(processes, action, **arguments):
    """Ask all processes at once, and return their answers by name. For what is not timed."""
    for process in processes.values():
        process.send(action, **arguments)
    return {name: process.hear() for name, process in processes.items()}
