"""How updates are partitioned and then applied: the plan of the buckets, and its execution."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dmlcpu.common.arguments import Array
from dmlcpu.kernels.scatter_nd.partition import WHOLE
from dmlcpu.kernels.scatter_nd.work import CUTS, CUTS_CELLS, MOST_BINS, MOST_BUCKETS, PAIRS, SHARE_CELLS
from dmlcpu.operators.scatter_nd.layout import Tensors
from dmlcpu.runtime.memory import second_level_cache
from dmlcpu.runtime.records import CACHE_LINE, CELL

_LINE_CELLS = CACHE_LINE // CELL
_LEAST_EVENS = 16  # for shares to alternate between
# For each thread: ranges with about equally many updates, and samples. The fullest ranges are taken first, so two of
# equal size suffice; four allow for inexact quantiles. Counted: of 1,000,000 uniform single elements the largest is
# 1.05 times the mean with 64 threads and 1.07 with 128; of 250,000 rows 1.03 and 1.10. With Zipf indices it is that of
# the commonest index.
_RANGES, _SAMPLES = 4, 16
_MOST_PAIRS = 60 << 20  # bytes in a round, so that a call's workspace is less than 64 MiB and 1 MiB a thread


@dataclass(frozen=True, slots=True)
class Buckets:
    """What updates are partitioned into, and where that lies in the workspace: fields of the work record."""

    evens: int = 0  # 0: updates are not partitioned
    steps: int = 0
    samples: int = 0
    bits: int = 0
    span: int = 0
    shares: int = 0
    turn: int = 0
    counter: int = 0
    cuts: int = 0
    spaces: int = 0
    pairs: int = 0
    of_update: int = 0
    of_word: int = 0


def lay_buckets(
    tensors: Tensors, parts: int, owners: int, cells: int, *, balances: bool, has_numbers: bool, copies: bool
) -> tuple[Buckets, int]:
    """Return the buckets, and the cells of the workspace with them.

    parts: shares of the updates; owners: threads that take buckets; cells: of the workspace before the buckets;
    balances: ranges have about equally many updates; has_numbers: pairs have numbers of updates; copies: x is copied
    with the updates.
    """
    span, width = tensors.span, tensors.width
    near = second_level_cache() // 4 // width  # words of a range
    if balances:
        bits = max((span - 1).bit_length() - (MOST_BINS.bit_length() - 1), 0)
        steps, samples = min(_RANGES * owners, MOST_BUCKETS // 2), _SAMPLES * owners
        evens = min(max(-(-span // near), _RANGES * owners, _LEAST_EVENS), MOST_BUCKETS - steps, span)
    else:
        bits = max(min(near.bit_length(), (span // _LEAST_EVENS).bit_length()) - 1, 0)
        while (span - 1 >> bits) >= MOST_BUCKETS:  # an offset within a bucket has at most 32 bits, up to 2**39 words
            bits += 1
        steps, samples, evens = 0, 0, (span - 1 >> bits) + 1
    a_pair = 2 if width == 8 and not has_numbers else 1
    turn = min(tensors.count, _MOST_PAIRS // CELL // a_pair)
    counter = -(-cells // _LINE_CELLS) * _LINE_CELLS
    cuts = counter + _LINE_CELLS
    spaces = cuts + CUTS_CELLS
    pairs = spaces + parts * SHARE_CELLS
    cells = pairs + max((turn + parts * (evens + steps) * PAIRS) * a_pair, samples)
    of_update, of_word = 160 + 8 * tensors.slice_size, width if copies else 0  # as in plan.py, times 32
    places = counter, cuts, spaces, pairs
    return Buckets(evens, steps, samples, bits, span, parts, turn, *places, of_update, of_word), cells


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """The kernels that partition updates and apply them, and what they need in addition to the work record."""

    buckets: Buckets
    count: int  # of updates
    checks: bool  # whether an index out of range is an error
    copies: bool  # whether `apply` copies x
    most: int  # updates that the fullest bucket may hold: if it has more, they are not partitioned
    sample: Callable[..., Any]
    cut: Callable[..., Any]
    count_all: Callable[..., Any]
    order: Callable[..., Any]
    partition: Callable[..., Any]
    apply: Callable[..., Any]

    @property
    def turns(self) -> int:
        """The number of rounds."""
        return -(-self.count // self.buckets.turn)

    @property
    def indices_read(self) -> int:
        """How many index tuples are read: in passes that sample, validate, count (only, if in rounds) and partition."""
        return self.buckets.samples + (3 if self.turns > 1 and self.checks else 2) * self.count

    def find_cuts(self, indices: Array, work: Array, scratch: Array) -> None:
        """Find the ranges of buckets."""
        buckets = self.buckets
        if buckets.samples:
            self.sample(indices, work, scratch)
            scratch[buckets.pairs : buckets.pairs + buckets.samples].sort()
        self.cut(work, scratch)

    def count_turn(self, turn: int, indices: Array, work: Array, scratch: Array) -> None:
        """Count the updates of a round, which validates them; or only validate all if it is WHOLE."""
        scratch[self.buckets.counter + 1] = turn
        self.count_all(indices, work, scratch)

    def validate(self, indices: Array, work: Array, scratch: Array) -> bool:
        """Find the ranges of buckets, and validate all updates if need be; return whether shares have reported."""
        self.find_cuts(indices, work, scratch)
        if self.turns == 1 or self.checks:
            self.count_turn(0 if self.turns == 1 else WHOLE, indices, work, scratch)
        return self.turns == 1 or self.checks

    def is_spread(self, indices: Array, work: Array, scratch: Array) -> bool:
        """Return whether no bucket holds more updates of the first round than it may."""
        if self.turns > 1:
            self.count_turn(0, indices, work, scratch)
        self.order(work, scratch)
        return bool(self.cuts(scratch)["fullest"] <= self.most)

    def run(self, x: Array, indices: Array, updates: Array, out: Array, work: Array, scratch: Array) -> None:
        """Partition and apply validated updates, round by round."""
        for turn in range(self.turns):
            if turn:
                self.count_turn(turn, indices, work, scratch)
                self.order(work, scratch)
            self.partition(indices, updates, work, scratch)
            scratch[self.buckets.counter] = 0
            self.apply(x, updates, out, work, scratch)
            x = x[:0]

    def cuts(self, scratch: Array) -> Any:
        """Return the CUTS of a call."""
        return scratch[self.buckets.cuts : self.buckets.cuts + CUTS_CELLS].view(CUTS)[0]
