"""Measure a cell of the comparison, with everything that its file keeps."""

import datetime
import importlib.metadata
import platform
import statistics
import subprocess
from pathlib import Path

import machine
from benchmarks import THREADS, limits, peers, turns
from benchmarks.turns import Contender
from cells import Cell, rounded

from dmlcpu import __version__
from dmlcpu.runtime import isa

LIMIT = "limit"
PACKAGES = ("dask", "faiss-cpu", "numba", "numkong", "numpy", "onnxruntime", "torch", "usearch")
ROOT = Path(__file__).parents[1]


def measured(table, name, case, regime, contenders, refused, count):
    """Return the cell of a case after `count` runs. In a steady cell, the machine's limit is another contender."""
    truth = peers.arrays(case.dmlcpu()())
    amount, unit = case.work(truth)
    wrong = {}
    for contender in contenders:
        if not contender.startswith("dmlcpu") and (error := peers.fault(case, contender, truth[0])):
            wrong[contender] = error
    timed, limit = dict(contenders), limits.of(unit) if regime == "steady" else None
    if limit:
        timed[LIMIT] = Contender(limit, "dmlcpu", "steady")
    samples = turns.take(timed, count)
    at_most = samples.pop(LIMIT, None)
    found = cell(table, name, samples, count, regime)
    found.refused, found.wrong, found.work = refused, wrong, {unit: amount}
    if at_most:
        found.limit = {unit: round(limit.amount / statistics.median(at_most))}
    return found


def cell(table, name, samples, count, regime="steady"):
    """Return the cell of samples, in seconds, taken on this machine today."""
    return Cell(
        table=table,
        case=name,
        regime=regime,
        threads=THREADS,
        turns=count,
        date=datetime.date.today().isoformat(),
        commit=commit(),
        machine=this_machine(),
        versions=versions(),
        samples={contender: rounded(each) for contender, each in samples.items()},
    )


def commit():
    """Return the measured commit, with a plus sign if files of the package have changed since."""

    def git(*arguments):
        return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()

    return git("rev-parse", "--short=10", "HEAD") + ("+" if git("status", "--porcelain", "dmlcpu") else "")


def this_machine():
    return {
        "name": machine.name(),
        "cpu": machine.cpu(),
        "cores": machine.cores(),
        "memory_gib": machine.memory(),
        "features": sorted(each.name.lower() for each in isa.detected()),
    }


def versions():
    """Return the versions of Python and of the installed contenders."""
    found = {"python": platform.python_version(), "dmlcpu": __version__}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
