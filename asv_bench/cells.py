"""The comparison as data: one JSON file for each cell (a case in a regime) with the samples of all contenders.

    comparisons/MACHINE/TABLE/CASE.REGIME.json

All figures and charts are made from these files.
"""

import json
import re
import statistics
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "comparisons"
DIGITS, SHOWN = 4, 3  # of a sample, and of a figure in a table


@dataclass
class Cell:
    """What was measured of one case in one regime, in one process, in alternating runs."""

    table: str
    case: str
    regime: str
    threads: int
    turns: int
    date: str
    commit: str  # with a plus sign if files have changed since
    machine: dict[str, Any]  # name, cpu, cores, memory in GiB, features
    versions: dict[str, str]
    # Seconds a call, by contender. Uneven regimes have one sample for each call, the others one for each run.
    samples: dict[str, list[float]]
    refused: dict[str, str] = field(default_factory=dict)  # the reason why a contender has no samples
    wrong: dict[str, str] = field(default_factory=dict)  # contenders with a wrong result, and what is wrong
    # The least that the case needs, and the most that the machine gave in the same runs: bytes or products.
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
        """Return how many times as long as another a contender takes, or None if one of them has no figure.

        It is the quotient of the two medians as tables show them: readers who divide find the same ratio.
        """
        theirs, ours = self.median(contender), self.median(to)
        if theirs is None or ours is None:
            return None
        return shown(theirs) / shown(ours)


def shown(median):
    """Return a median as tables show it."""
    return float(f"{median:.{SHOWN}g}")


def p99(samples):
    return statistics.quantiles(samples, n=100)[-1] if len(samples) > 1 else samples[0]


def rounded(samples):
    """Return samples with as many digits as are kept."""
    return [float(f"{sample:.{DIGITS}g}") for sample in samples]


def slug(case):
    """Return a case's name as one of a file."""
    return "-".join(re.findall(r"[a-z0-9]+", case.lower().replace("*", "x").replace("=", " ")))


def load(folder=FOLDER):
    """Return all cells, in order of machine, table, case and regime."""
    return [Cell(**json.loads(path.read_text("utf-8"))) for path in sorted(folder.glob("*/*/*.json"))]
