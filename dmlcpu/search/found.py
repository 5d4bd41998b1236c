"""The best vectors for each query, and the work to find them."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from dmlcpu.common.arguments import Array


@dataclass(frozen=True, slots=True)
class Report:
    """The work of a search.

    Attributes
    ----------
    scored : ndarray of int64, shape (M,)
        How many vectors were scored as floats for each query.
    passes : ndarray of int8, shape (M,)
        1: the first candidates were enough; 2: more candidates were selected, or groups were searched; 3: all vectors
        were scored.
    """

    scored: Array
    passes: Array


Report.__module__ = "dmlcpu.search"


class Found(NamedTuple):
    """The best of each query, and the work; see `Report`."""

    ranks: Array  # float64 (M, k), -inf where there are fewer
    positions: Array  # int64 (M, k), -1 where there are fewer
    scored: Array  # int64 (M,)
    passes: Array  # int8 (M,)

    @classmethod
    def nothing(cls, count: int, k: int) -> "Found":
        """Return what nothing has been found for."""
        ranks, positions = np.full((count, k), -np.inf), np.full((count, k), -1, np.int64)
        return cls(ranks, positions, np.zeros(count, np.int64), np.zeros(count, np.int8))

    def put(self, rows: Array, found: "Found") -> None:
        """Set what is found for some queries."""
        for mine, other in zip(self, found, strict=True):
            mine[rows] = other

    def add(self, rows: Array, found: "Found") -> None:
        """Add what is found for some queries among other vectors."""
        both = np.concatenate([self.ranks[rows], found.ranks], axis=1)
        where = np.concatenate([self.positions[rows], found.positions], axis=1)
        ranks, positions = best_of(both, where, self.ranks.shape[1])
        self.put(rows, Found(ranks, positions, self.scored[rows] + found.scored, found.passes))


def best_of(ranks: Array, positions: Array, k: int) -> tuple[Array, Array]:
    """Return the k best ranks of each row and their positions, -1 of none: of equal ranks, the lower position first."""
    order = np.lexsort((np.where(positions < 0, np.iinfo(np.int64).max, positions), -ranks))[:, :k]
    return np.take_along_axis(ranks, order, 1), np.take_along_axis(positions, order, 1)
