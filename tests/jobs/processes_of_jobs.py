"""What tests of worker processes ask of processes."""

import contextlib
import subprocess
import sys
import textwrap
from pathlib import Path

HERE = Path(__file__).parent


def ended(process_id):
    """Say whether an orphan is gone, or waits for the system to note that it is."""
    try:
        return Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def children(process_id):
    """Return the processes that any thread of a process has started."""
    found = []
    for each in Path(f"/proc/{process_id}/task").glob("*/children"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # the thread has ended meanwhile
            found += [int(number) for number in each.read_text().split()]
    return found


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
