"""Run jobs while system calls on their files fail at random (faulty_calls.c); nothing may be said done that is not.

cc -shared -fPIC -o faulty.so tests/reliability/faulty_calls.c
LD_PRELOAD=./faulty.so python tests/reliability/faulty_calls.py --runs 200

`--only SEED` repeats a run: what fails is the same, but for the order in which threads come.
"""

import argparse
import ctypes
import itertools
import json
import os
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import dmlcpu
from dmlcpu.batch import BatchResult, JobsError, ManifestError, WorkerError, jobs_status, run_jobs
from dmlcpu.files import open_source
from dmlcpu.jobs.manifest import Manifest

SUFFIXES = [".npz", ".npy", ".zarr", ".safetensors"]
JOBS = 16
MEMORY = "/dev/shm"  # where a sync takes no time
# What a run may raise instead of a result: it has said of no job that it is done.
REFUSALS = (JobsError, ManifestError, WorkerError, OSError)


class Faults:
    """Switches faults of this process, and of those that it starts, on and off."""

    def __init__(self) -> None:
        self._calls = ctypes.CDLL(None)
        self._calls.faults_end.restype = ctypes.c_uint64

    def begin(self, seed: int, odds: int, folder: Path) -> None:
        os.environ["DMLCPU_FAULTS"] = f"{seed} {odds} {folder}"
        self._calls.faults_begin(ctypes.c_uint64(seed), ctypes.c_uint64(odds), os.fsencode(folder))

    def end(self) -> int:
        os.environ.pop("DMLCPU_FAULTS", None)
        return int(self._calls.faults_end())


class Jobs:
    """Jobs of all formats; of a large file, too, which is read and written in blocks."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "in").mkdir()
        self.described: dict[str, dict[str, Any]] = {}
        for number in range(JOBS):
            id_, suffix = f"{number:02}", SUFFIXES[number % len(SUFFIXES)]
            self.save(id_, 0)
            output = f"out/{number % 3}/{id_}{suffix}"
            job = {"id": id_, "op": "top_k", "inputs": {"x": f"in/{id_}.npy"}, "attrs": {"k": 5}}
            self.described[id_] = job | {"output": {"values": output} if suffix == ".npy" else output}
        path = folder / "jobs.jsonl"
        path.write_text("".join(json.dumps(job) + "\n" for job in self.described.values()))

    def save(self, id_: str, version: int) -> None:
        """Save a job's input."""
        shape = (90, 4000) if id_ in ("01", "02") else (8, 64)
        array = np.random.default_rng([int(id_), version]).standard_normal(shape, np.float32)
        np.save(self.folder / "in" / f"{id_}.npy", array)

    def has_changed(self, id_: str, record: dict[str, Any]) -> bool:
        """Return whether a job's input is another one than that of a record."""
        path = f"in/{id_}.npy"
        return bool(record["inputs"][path]["mtime_ns"] != os.stat(self.folder / path).st_mtime_ns)

    def wrong(self, id_: str) -> str | None:
        """Return what is wrong with a job's file."""
        expected = dmlcpu.top_k(np.load(self.folder / "in" / f"{id_}.npy"), 5)
        output = self.described[id_]["output"]
        path = output if isinstance(output, str) else output["values"]
        for name in ("values", "indices") if isinstance(output, str) else ("values",):
            try:
                with open_source(self.folder / path, name if isinstance(output, str) else None) as source:
                    found = source.read()
            except (OSError, ValueError) as error:
                return f"{path}: {error}"
            right = getattr(expected, name)
            if found.dtype != right.dtype or found.tobytes() != right.tobytes():
                return f"{path}: other {name}"
        return None


def check(jobs: Jobs, result: BatchResult | None) -> Iterator[str]:
    """Yield what a run, the manifest and `jobs_status` say that is not so."""
    path = jobs.folder / "jobs.jsonl"
    recorded = jobs.folder / "jobs.jsonl.manifest.jsonl"
    records = Manifest(recorded, lock=False).records if recorded.exists() else {}
    outcomes = {id_: records[id_]["outcome"] for id_ in records}
    stale = {id_ for id_ in outcomes if outcomes[id_] == "done" and jobs.has_changed(id_, records[id_])}
    done = {id_ for id_, outcome in outcomes.items() if outcome == "done"} - stale
    yield from (f"recorded as done: {wrong}" for id_ in done if (wrong := jobs.wrong(id_)))
    if recorded.exists():
        status = jobs_status(path)
        if (status.done, status.stale, status.invalid) != (len(done), len(stale), 0):
            yield f"{len(done)} recorded as done, {len(stale)} changed, status: {status}"
    if result is None:
        return
    failed = {failure.id for failure in result.failures if failure.id}
    unrecorded = [failure for failure in result.failures if not failure.id]
    if result.exit_code != (1 if failed or unrecorded else 0) or len(failed) != result.failed or result.not_run:
        yield f"counts: {result}"
    said = jobs.described.keys() - failed
    yield from (f"said done: {wrong}" for id_ in said if (wrong := jobs.wrong(id_)))
    if len(said) != result.done + result.done_before:
        yield f"{len(said)} have not failed: {result}"
    if not unrecorded and (done != said or any(outcomes.get(id_) != "failed" for id_ in failed)):
        yield f"said done {sorted(said)}, recorded {outcomes}"


def run(seed: int, faults: Faults, counts: Counter[str]) -> list[str]:
    """Make a run, and the same without faults after it; return what is wrong."""
    drawn = random.Random(seed)
    options: dict[str, Any] = {"retries": drawn.randrange(3), "max_memory": "1M", "keep_going": drawn.random() < 0.8}
    options["check_as_you_go"] = drawn.random() < 0.3
    folder = Path(tempfile.mkdtemp(prefix="faulty", dir=MEMORY if os.path.isdir(MEMORY) else None))
    try:
        jobs = Jobs(folder)
        if drawn.random() < 0.4:  # it goes on after another, and some inputs have changed
            run_jobs(folder / "jobs.jsonl", max_memory="1M")
            for id_ in drawn.sample(sorted(jobs.described), JOBS // 2):
                jobs.save(id_, 1)
        if drawn.random() < 0.1:
            options |= {"workers": 2, "max_memory": "2M"}
        if drawn.random() < 0.3:
            options["log"] = folder / "log.jsonl"
        odds = int(10 ** drawn.uniform(1.2, 2.4))
        result = None
        faults.begin(seed, odds, folder)
        try:
            result = run_jobs(folder / "jobs.jsonl", **options)
        except REFUSALS as error:
            counts["refused"] += 1
            counts[f"refused: {type(error).__name__}"] += 1
        finally:
            counts["faults"] += faults.end()
        if result:
            counts["done"] += result.done
            counts["failed"] += result.failed
        wrong = list(check(jobs, result))
        last = run_jobs(folder / "jobs.jsonl", max_memory="1M")
        wrong += [f"after it, {each}" for each in check(jobs, last)]
        wrong += [f"left: {path.relative_to(folder)}" for path in (folder / "out").rglob("*.part")]
        return wrong + ([f"after it: {last}"] if last.failures else [])
    finally:
        shutil.rmtree(folder)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0, help="of the first run")
    parser.add_argument("--seconds", type=float, help="how long it goes on, whatever --runs says")
    parser.add_argument("--only", type=int)
    options = parser.parse_args()
    faults, counts, end = Faults(), Counter[str](), time.monotonic() + (options.seconds or 0)
    seeds = itertools.count(options.seed) if options.seconds else range(options.seed, options.seed + options.runs)
    found = 0
    for seed in seeds if options.only is None else [options.only]:
        if options.seconds and time.monotonic() > end:
            break
        counts["runs"] += 1
        for wrong in run(seed, faults, counts):
            print(f"seed {seed}: {wrong}", file=sys.stderr)
            found += 1
    print(", ".join(f"{count:,} {what}" for what, count in counts.items()))
    return int(bool(found) or not counts["faults"])


if __name__ == "__main__":
    sys.exit(main())
