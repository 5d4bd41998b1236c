"""The kernels of sort, argsort and sort_with_indices."""

from dataclasses import dataclass

from dmlcpu.kernels.registry import Row
from dmlcpu.kernels.sort.work import LANES, SHORT

_FEWEST = 4  # sequences that are worth sorting together
# The most elements in a column: 16 columns take 200 bytes for each place, and longer ones leave the caches.
_LONGEST = 1 << 17


@dataclass(frozen=True, slots=True)
class Sorting(Row):
    """A kernel that sorts. The table lists kernels in the order of preference; `rows` sorts everything."""

    element: float  # nanoseconds for an element of 4 bytes, on one thread

    def cost(self, n: int, width: int) -> int:
        """Return about how many nanoseconds a sequence takes on one thread. width: bytes of an element."""
        return int(100 + n * self.element * (1 + width / 4) / 2)

    def supports(self, rows: int, n: int, width: int, columns: int) -> bool:
        """Return whether the kernel can do this, and pays. columns: see Sequences."""
        if self.name == "network":
            return n <= SHORT and rows >= _FEWEST and width >= 4
        return columns >= _FEWEST if self.name == "columns" else True

    def pays(self, n: int, sorts_keys: bool) -> bool:
        """Return whether the kernel may be the fastest. sorts_keys: only values are wanted, of up to 32 bits."""
        return self.name != "columns" or (n <= _LONGEST and not sorts_keys)

    def lanes(self, columns: int) -> int:
        """Return how many sequences are sorted together."""
        return {"network": LANES, "columns": min(LANES, columns)}.get(self.name, 1)

    def most_parts(self, rows: int, columns: int) -> int:
        """Return the most parts that the work can be cut into."""
        return rows // columns * -(-columns // LANES) if self.name == "columns" else rows


KERNELS = tuple(
    Sorting.of(operator, "sort", f"sort.{path}", element=element)
    for operator in ("sort", "argsort", "sort_with_indices")
    for path, element in (
        ("network.network", 8),
        ("columns.columns", 16),
        ("split.split", 10),
        ("rows.rows", 10),
    )
)
