"""The comparison as data: one JSON file for each cell, a case in a regime, with the samples of all contenders.

    comparisons/MACHINE/TABLE/CASE.REGIME.json

Figures and charts are made of these files alone.
"""

import json
import re
import statistics
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "comparisons"
DIGITS = 4  # of a sample


@dataclass
class Cell:
    """What was measured of one case in one regime, in one process, in turns."""

    table: str
    case: str
    regime: str
    threads: int
    turns: int
    date: str
    commit: str  # with a plus sign if files had changed since
    machine: dict[str, Any]  # name, cpu, cores, memory in GiB, features
    versions: dict[str, str]
    # Seconds a call, by contender. Uneven regimes have one sample a call, the others one a turn.
    samples: dict[str, list[float]]
    refused: dict[str, str] = field(default_factory=dict)  # why a contender has no samples
    wrong: dict[str, str] = field(default_factory=dict)  # contenders whose result is wrong, with what is
    # What the case needs at least, and what the machine gave at most, in the same turns: bytes or products.
    work: dict[str, float] = field(default_factory=dict)
    limit: dict[str, float] = field(default_factory=dict)  # a second

    def path(self, folder=FOLDER):
        return folder / self.machine["name"] / self.table / f"{slug(self.case)}.{self.regime}.json"

    def save(self, folder=FOLDER):
        path = self.path(folder)
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = (f'"{name}": {json.dumps(value)}' for name, value in asdict(self).items())
        path.write_text("{\n" + ",\n".join(lines) + "\n}\n", "utf-8")

    def median(self, contender):
        """Return the median of a contender in seconds, or None if it has none, or its result is wrong."""
        if contender in self.wrong or contender not in self.samples:
            return None
        return statistics.median(self.samples[contender])

    def ratio(self, contender, to="dmlcpu"):
        """Return how many times as long as another a contender takes, or None where one of them has no figure.

        It is the median over the turns, in which they follow one another: on shared machines all calls may take twice
        as long for seconds, and a ratio of medians of all turns would tell of these seconds.
        """
        if self.median(contender) is None or self.median(to) is None:
            return None
        ours, theirs = self.samples[to], self.samples[contender]
        if len(ours) != len(theirs):  # of uneven calls
            return self.median(contender) / self.median(to)
        return statistics.median(theirs[turn] / ours[turn] for turn in range(len(ours)))


def rounded(samples):
    """Return samples with as many digits as are kept."""
    return [float(f"{sample:.{DIGITS}g}") for sample in samples]


def slug(case):
    """Return a case's name as one of a file."""
    return "-".join(re.findall(r"[a-z0-9]+", case.lower().replace("*", "x").replace("=", " ")))


def load(folder=FOLDER):
    """Return all cells, in order of machine, table, case and regime."""
    return [Cell(**json.loads(path.read_text("utf-8"))) for path in sorted(folder.glob("*/*/*.json"))]
