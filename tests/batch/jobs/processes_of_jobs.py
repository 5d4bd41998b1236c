"""What tests of worker processes ask of processes."""

import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

HERE = Path(__file__).parent


def eventually(true, seconds=30):
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.01)


def gone(process_id):
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return True
    return False


def ended(process_id):
    """Say whether an orphan is gone, or waits for the system to note that it is."""
    try:
        return Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def children(process_id):
    try:
        return Path(f"/proc/{process_id}/task/{process_id}/children").read_text()
    except (FileNotFoundError, ProcessLookupError):  # it has ended
        return ""


def begun(folder):
    """Return the process of each thread that has begun an item of `serving.slow`."""
    return [int(path.name.split("-")[1]) for path in folder.glob("begun-*")]


def start(code, *arguments, **options):
    """Start a script that uses workers, with a module `serving` beside it."""
    code = f"import sys; sys.path.insert(0, {str(HERE)!r})\n{textwrap.dedent(code)}"
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", code, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )
