"""The kernels of top_k."""

from dataclasses import dataclass

from dmlcpu.kernels.registry import Row, load
from dmlcpu.kernels.top_k.work import Problem


@dataclass(frozen=True, slots=True)
class Selection(Row):
    """A kernel that selects; its times for a sequence on one thread hold within a factor of 2 (Zen 4)."""

    element: float  # nanoseconds for an element of 4 bytes
    winner: float  # nanoseconds for a winner

    def cost(self, problem: Problem, width: int) -> int:
        """Return about how many nanoseconds a sequence takes on one thread. width: bytes of an element."""
        return int(problem.n * width / 4 * self.element + problem.k * self.winner)

    def supports(self, problem: Problem) -> bool:
        """Return whether the kernel can do this."""
        return bool(load(f"{self.path.removesuffix(self.name)}supports")(problem))

    def workspace(self, n: int, k: int, lanes: int) -> tuple[int, int]:
        """Return how many keys and positions each share needs. lanes: elements of a line."""
        keys, positions = load(f"{self.path.removesuffix(self.name)}workspace")(n, k, lanes)
        return keys, positions


KERNELS = (
    Selection.of("top_k", "select", "top_k.lockstep.lockstep", element=0.5, winner=8),
    Selection.of("top_k", "select", "top_k.tournament.tournament", element=0.2, winner=45),
    Selection.of("top_k", "select", "top_k.split.split", element=0.2, winner=45),
    Row.of("top_k", "merge", "top_k.split.merge"),
    Selection.of("top_k", "select", "top_k.strided_insert.strided_insert", element=0.6, winner=2),
    Selection.of("top_k", "select", "top_k.strided_tournament.strided_tournament", element=1, winner=120),
    Selection.of("top_k", "select", "top_k.select_sort.select_sort", element=2, winner=10),
    Row.of("top_k", "filter", "top_k.strided_filter.strided_filter"),
)
