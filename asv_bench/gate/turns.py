"""The measurement: living processes take turns at each cell."""

import math
import statistics
from typing import NamedTuple

from .cells import Cell
from .processes import ask_all, started

BASE, HEAD, AGAIN = "base", "head", "base again"
# Within a round each process has a turn on the way there and one on the way back (A B C C B A), so that what drifts
# meets all alike. The orders alternate, because who follows itself finds its data still in the caches.
ORDERS = ((BASE, HEAD, AGAIN), (HEAD, AGAIN, BASE), (AGAIN, BASE, HEAD))
SAMPLE = 2e-3  # seconds: shorter calls are repeated
SAMPLES = 3  # of a turn, of calls that are not longer


class Measured(NamedTuple):
    """The seconds of a cell's calls, for each process one number a round; or why it could not be timed."""

    cell: Cell
    seconds: dict[str, list[float]]
    missing: dict[str, str]


def measure(sides, cells, rounds, progress=lambda cell: None, reverse=False):
    """Time cells on both sides, and the base in a second process. reverse: in the opposite order."""
    orders = [order[::-1] for order in ORDERS] if reverse else ORDERS
    by_name = {BASE: sides["base"], HEAD: sides["head"], AGAIN: sides["base"]}
    found = []
    with started({name: by_name[name] for name in orders[0]}) as processes:
        for cell in cells:
            progress(cell)
            found.append(_measure(processes, cell, orders, rounds))
    return found


def _measure(processes, cell, orders, rounds):
    built = ask_all(processes, "build", **cell._asdict())
    missing = {name: answer["missing"] for name, answer in built.items() if "missing" in answer}
    seconds = {name: [] for name in processes}
    if missing:
        return Measured(cell, seconds, missing)
    one = statistics.median(answer["seconds"] for answer in built.values())
    size = {"samples": SAMPLES if one < SAMPLE else 1, "calls": max(1, int(SAMPLE / one))}
    for number in range(rounds):
        order = orders[number % len(orders)]
        turns = [(name, processes[name].ask("turn", **size)["seconds"]) for name in (*order, *order[::-1])]
        for name in processes:
            seconds[name].append(math.prod(taken for who, taken in turns if who == name) ** 0.5)
    return Measured(cell, seconds, missing)
