"""Read inputs that are nearly right: whatever is not read is refused, in little time and memory.

    python tests/reliability/fuzz.py model --seconds 600

With atheris (`pip install atheris`), coverage of the code that reads leads to the next inputs; without it they are
random. The smallest input of each kind of failure is saved in --findings, and `--only FILE` reads it again.
"""

import argparse
import collections
import contextlib
import importlib.util
import itertools
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

try:
    import resource
except ImportError:  # Windows has no such limits
    resource = None

sys.path.insert(0, str(Path(__file__).parent))
MOST_SECONDS = 20  # of one input
MOST_BYTES = 2 << 30  # beside what the process has


class Findings:
    """What came of a target's inputs."""

    def __init__(self, target: Any) -> None:
        self._target = target
        self._outcomes: collections.Counter[str] = collections.Counter()
        self._slowest = 0.0
        self.failures: dict[str, tuple[bytes, str]] = {}  # by kind and place: the smallest input, and the traceback

    def attempt(self, data: bytes) -> None:
        """Read an input."""
        start = time.thread_time()
        try:
            with bounded_memory():
                self._target.read(data)
            self._outcomes["read"] += 1
        except self._target.refusals as error:
            self._outcomes[type(error).__name__] += 1
        except (Exception, SystemExit) as error:
            self._outcomes["failed"] += 1
            frames = traceback.extract_tb(error.__traceback__)
            place = [frame for frame in frames if "dmlcpu" in Path(frame.filename).parts] or frames
            self._note(
                f"{type(error).__name__} at {place[-1].filename}:{place[-1].lineno}", data, traceback.format_exc()
            )
        seconds = time.thread_time() - start
        self._slowest = max(self._slowest, seconds)
        if seconds > MOST_SECONDS:
            self._note("slow", data, f"{seconds:.1f} s")

    def _note(self, kind: str, data: bytes, text: str) -> None:
        if kind not in self.failures or len(data) < len(self.failures[kind][0]):
            self.failures[kind] = data, text

    def __str__(self) -> str:
        counts = ", ".join(f"{count:,} {outcome}" for outcome, count in sorted(self._outcomes.items()))
        return f"{self._outcomes.total():,} inputs: {counts}; the slowest took {self._slowest:.2f} s"


@contextlib.contextmanager
def bounded_memory() -> Iterator[None]:
    """Let memory run out soon."""
    statm = Path("/proc/self/statm")
    if resource is None or not statm.exists():
        yield
        return
    _, hard = before = resource.getrlimit(resource.RLIMIT_AS)
    now = int(statm.read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + MOST_BYTES, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def seeded(target: Any, seeds: Iterable[int]) -> Findings:
    """Try inputs that follow from seeds."""
    from mutations import Draws

    found = Findings(target)
    for seed in seeds:
        found.attempt(target.make(Draws(seed)))
    return found


def guided(target: Any, seconds: float, folder: Path) -> None:
    """Try inputs that atheris leads to, report, and end the process."""
    import atheris
    from mutations import Draws

    class Guided(Draws):
        def __init__(self, data: bytes) -> None:
            self._data = atheris.FuzzedDataProvider(data)

        def integer(self, low: int, high: int) -> int:
            return self._data.ConsumeIntInRange(low, high)

        def bytes(self, most: int) -> bytes:
            return self._data.ConsumeBytes(self.integer(0, most))

    found, end = Findings(target), time.monotonic() + seconds

    def one(data: bytes) -> None:
        if time.monotonic() > end:
            os._exit(report(found, folder))
        found.attempt(target.make(Guided(data)))

    options = ["-max_len=400", "-len_control=0", "-verbosity=0", "-rss_limit_mb=0", "-timeout=60"]
    atheris.Setup([sys.argv[0], *options], one)
    atheris.Fuzz()


def targets() -> dict[str, Any]:
    """Import what is tested, for atheris to see which of its code runs."""
    try:
        import atheris
    except ImportError:
        watched = contextlib.nullcontext()
    else:
        watched = atheris.instrument_imports(["dmlcpu"], modules_for_numba(), enable_loader_override=False)
    with watched:
        from fuzz_targets import TARGETS
        from mutations import Draws

        for target in TARGETS.values():  # what is imported late
            with contextlib.suppress(*target.refusals):
                target.read(target.make(Draws(0)))
    return TARGETS


def modules_for_numba() -> list[str]:
    """Return the modules with code that Numba compiles, which atheris must not change."""
    root = Path(importlib.util.find_spec("dmlcpu").origin).parent
    files = [path for folder in ("kernels", "runtime", "interop/numba") for path in (root / folder).rglob("*.py")]
    return [".".join(("dmlcpu", *path.relative_to(root).with_suffix("").parts)) for path in files]


def report(found: Findings, folder: Path) -> int:
    """Print what was found, and save inputs; return the status to end with."""
    for number, (kind, (data, text)) in enumerate(found.failures.items()):
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{number}"
        path.write_bytes(data)
        print(f"{kind}, {len(data)} bytes in {path}\n{text}")
    print(found, flush=True)
    return 1 if found.failures else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--findings", type=Path, default=Path("findings"))
    parser.add_argument("--only", type=Path, help="read one input again")
    options = parser.parse_args()
    if options.only:
        options.only = options.only.resolve()
    folder = options.findings.resolve() / options.target
    work = Path(tempfile.mkdtemp(), "a", "b")  # inputs name files in the folder above
    work.mkdir(parents=True)
    os.chdir(work)
    target = targets()[options.target]
    if options.only:
        target.read(options.only.read_bytes())
        return 0
    if "atheris" in sys.modules:
        guided(target, options.seconds, folder)
    end = time.monotonic() + options.seconds
    seeds = itertools.takewhile(lambda _: time.monotonic() < end, itertools.count(time.time_ns()))
    return report(seeded(target, seeds), folder)


if __name__ == "__main__":
    sys.exit(main())
