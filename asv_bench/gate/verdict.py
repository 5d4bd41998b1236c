"""From seconds to a verdict."""

import statistics
from typing import NamedTuple

import numpy as np

from .cells import CONTROLS, Cell
from .turns import AGAIN, BASE, HEAD

CONFIDENCE = 0.99
DRAWS = 2_000  # of the bootstrap
FEWEST_ROUNDS = 9  # each of the three orders comes three times
BIAS = 1.02  # of controls
FEWEST_CELLS = 8  # whose median tells of the machine: a second run may have one cell, whose ratio tells of that cell
# The part of the cells that may differ between the two processes of the base. Some calls have one of two speeds for as
# long as a process lives, because of where its memory lies; they are judged beside both processes.
UNSTEADY = 0.25

QUIET, SLOWER, WITHHELD = 0, 1, 2  # exit codes
FAILS = "fails in head"


class Estimate(NamedTuple):
    """The ratio of lower quartiles, and an interval that holds the true one with the confidence."""

    middle: float
    low: float
    high: float

    def above(self, bound):
        """Return whether the ratio is above the bound, and above 1 for certain."""
        return self.middle > bound and self.low > 1

    def beyond(self, bound):
        """Return whether the ratio is above the bound or below its inverse, and not 1 for certain."""
        return self.above(bound) or self.inverse().above(bound)

    def inverse(self):
        return Estimate(1 / self.middle, 1 / self.high, 1 / self.low)


class Judged(NamedTuple):
    """What one run says of a cell. seconds: lower quartiles of base and head."""

    cell: Cell
    seconds: tuple[float, float]
    ratio: Estimate  # head to base
    again: Estimate  # head to the second process of the base
    control: Estimate  # second process of the base to the first

    def slower(self, threshold):
        return self.ratio.above(threshold) and self.again.above(threshold)

    def faster(self, threshold):
        return self.ratio.inverse().above(threshold) and self.again.inverse().above(threshold)

    def flagged(self, threshold):
        return self.slower(threshold) or self.faster(threshold)


class Row(NamedTuple):
    """A cell of the report. judged: None if it was not timed."""

    cell: Cell
    judged: Judged | None
    verdict: str


class Outcome(NamedTuple):
    rows: list[Row]
    withheld: list[str]  # why there is no verdict
    exit_code: int


def estimate(numerators, denominators):
    """Return the estimate of the ratio of two processes, from the seconds of their rounds.

    Each process is represented by the lower quartile of its rounds. Neighbours on the machine make some rounds slower,
    for seconds at a time, and none faster. So the quartile is that of quiet rounds, while three quarters may be spoilt.
    The interval is that of a bootstrap over rounds.
    """
    if len(numerators) < FEWEST_ROUNDS:
        raise ValueError(f"{len(numerators)} rounds are too few; allowed: {FEWEST_ROUNDS} or more")
    one, other = np.asarray(numerators, float), np.asarray(denominators, float)
    rounds = np.random.default_rng(0).integers(0, len(one), (DRAWS, len(one)))
    ratios = quartile(one[rounds]) / quartile(other[rounds])
    low, high = np.quantile(ratios, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return Estimate(float(quartile(one) / quartile(other)), float(low), float(high))


def quartile(seconds):
    """Return the lower quartile along the last axis."""
    return np.quantile(seconds, 0.25, axis=-1)


def judge(measured):
    base, head, again = (measured.seconds[name] for name in (BASE, HEAD, AGAIN))
    return Judged(
        measured.cell,
        (float(quartile(base)), float(quartile(head))),
        estimate(head, base),
        estimate(head, again),
        estimate(again, base),
    )


def biases(judged, threshold):
    """Return what shows that the machine did not treat the sides, or the two processes of the base, alike."""
    found = []
    for each in judged:
        if each.cell in CONTROLS:
            for name, ratio in (("head", each.ratio), ("the second process of base", each.control)):
                if ratio.beyond(BIAS):
                    found.append(f"{each.cell.case} took {ratio.middle:.3f} times as long in {name} as in base")
    controls = [each.control for each in judged if each.cell not in CONTROLS]
    if len(controls) >= FEWEST_CELLS:
        middle = statistics.median(control.middle for control in controls)
        if max(middle, 1 / middle) > BIAS:
            found.append(
                f"the second process of base took {middle:.3f} times as long as the first (median of the cells)"
            )
    unsteady = sum(control.beyond(threshold) for control in controls)
    if unsteady > max(1, UNSTEADY * len(controls)):
        found.append(f"the two processes of base differ in {unsteady} of {len(controls)} cells")
    return found


def flagged(measured, threshold):
    """Return the cells that a run finds slower or faster: a second run has to confirm them."""
    judged = [judge(each) for each in measured if not each.missing]
    return [each.cell for each in judged if each.cell not in CONTROLS and each.flagged(threshold)]


def conclude(first, second, threshold):
    """Return the outcome of a run and of the one that confirms it (of the flagged cells; it may be empty)."""
    judged = {each.cell: judge(each) for each in first if not each.missing}
    confirming = {each.cell: judge(each) for each in second if not each.missing}
    rows = [_row(each, judged.get(each.cell), confirming.get(each.cell), threshold) for each in first]
    withheld = biases(judged.values(), threshold)
    withheld += [f"in the second run {each}" for each in biases(confirming.values(), threshold)]
    withheld += [f"{row.cell} {row.verdict}" for row in rows if row.verdict.startswith(FAILS)]
    if not any(cell not in CONTROLS for cell in judged):
        withheld.append("no cell could be timed on both sides")
    if withheld:
        return Outcome(rows, withheld, WITHHELD)
    return Outcome(rows, [], SLOWER if any(row.verdict == "slower" for row in rows) else QUIET)


def _row(measured, judged, confirming, threshold):
    if measured.missing:
        return Row(measured.cell, None, _why_missing(measured.missing))
    verdict = "quiet"
    for name in ("slower", "faster"):
        if getattr(judged, name)(threshold):
            confirmed = confirming is not None and getattr(confirming, name)(threshold)
            verdict = name if confirmed else f"{name}, not confirmed"
    if verdict == "quiet" and judged.control.beyond(threshold):
        verdict = "unsteady"
    return Row(measured.cell, judged, verdict)


def _why_missing(missing):
    if HEAD not in missing:
        return f"new ({missing[BASE]})"
    if BASE not in missing:
        return f"{FAILS} ({missing[HEAD]})"
    return f"not here ({missing[HEAD]})"
