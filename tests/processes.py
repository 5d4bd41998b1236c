"""Fresh processes, for tests of Python's start and of settings that last as long as it runs."""

import json
import os
import subprocess
import sys
import textwrap


def run(code, **environment):
    """Run Python code in a fresh process in which warnings are errors; return its output."""
    process = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(code)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    return process.stdout


def run_each(codes, start, **environment):
    """Run each code in a fork of one fresh process that has run `start`, which saves its imports; return their outputs.

    Where a process cannot be forked, each has a process of its own.
    """
    start, codes = textwrap.dedent(start), [textwrap.dedent(code) for code in codes]
    if not hasattr(os, "fork"):
        return [run(start + code, **environment) for code in codes]
    # BLAS would start threads, and then Python warns of forks.
    found = run(f"{start}\ncodes = {codes!r}\n{FORKS}", **{"OPENBLAS_NUM_THREADS": "1", **environment})
    return json.loads(found)


FORKS = """
def _outputs():
    import json, os, tempfile
    printed = []
    for code in codes:
        with tempfile.TemporaryFile("w+") as file:
            if not (child := os.fork()):
                os.dup2(file.fileno(), 1)
                exec(code, globals())
                sys.stdout.flush()
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
            file.seek(0)
            printed.append(file.read())
    print(json.dumps(printed))

import sys
_outputs()
"""
