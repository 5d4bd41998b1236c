"""Fresh processes, for tests of Python's start and of settings that last as long as it runs."""

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
