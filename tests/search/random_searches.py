"""Random searches, each from a seed of its own, compared with the reference.

python tests/search/random_searches.py --calls 40000
"""

import argparse
from typing import Any, NamedTuple

import numpy as np

from dmlcpu import reference
from dmlcpu.runtime import threads
from dmlcpu.search import Int8Index

TYPES = ("int8", "uint8", "float32", "float16", "float64")


class RandomSearch(NamedTuple):
    """A search, and how it is to be made."""

    queries: np.ndarray
    vectors: np.ndarray
    k: int
    metric: str
    ids: np.ndarray | None
    mask: np.ndarray | None
    rescore: int | None
    threads: int


def random_search(seed: int) -> RandomSearch:
    """Draw a search: small, with ties, duplicates, zeros and extreme bytes."""
    rng = np.random.default_rng(seed)
    depth, count, rows = int(rng.integers(1, 70)), int(rng.integers(0, 130)), int(rng.integers(0, 14))
    vectors = _numbers(rng, count, depth)
    ids = rng.permutation(10 * count)[:count] if rng.random() < 0.3 else None
    mask = rng.random(count) < rng.choice([0.02, 0.5, 0.9]) if rng.random() < 0.4 else None
    k = int(rng.integers(0, count + 4)) if rng.random() < 0.5 else min(count, int(rng.integers(0, 12)))
    rescore = int(rng.integers(1, 5)) if vectors.dtype.kind == "f" and rng.random() < 0.3 else None
    metric = str(rng.choice(["ip", "l2", "cosine"]))
    return RandomSearch(_numbers(rng, rows, depth), vectors, k, metric, ids, mask, rescore, int(rng.integers(1, 5)))


def _numbers(rng: Any, count: int, depth: int) -> np.ndarray:
    dtype = np.dtype(str(rng.choice(TYPES)))
    if dtype.kind == "f":
        x = rng.standard_normal((count, depth)) * rng.choice([1e-3, 1, 100])
    else:
        limits = np.iinfo(dtype)
        width = int(rng.choice([1, 3, 255]))
        x = rng.integers(max(limits.min, -width), min(limits.max, width), (count, depth), endpoint=True)
    x = x.astype(dtype)
    if count and rng.random() < 0.5:
        x[rng.random(count) < 0.2] = 0
        x[rng.integers(0, count, count // 2)] = x[rng.integers(0, count)]
    return x


def differs(call: RandomSearch) -> str | None:
    """Return how a search differs from the reference, or None."""
    index = Int8Index(call.vectors, call.metric, call.ids, floats=True if call.rescore else None)
    with threads.use_budget(call.threads, grain=1):
        scores, found = index.search(call.queries, call.k, mask=call.mask, rescore=call.rescore)
    expected, places = reference.knn(
        call.queries, call.vectors, call.k, call.metric, mask=call.mask, rescore=call.rescore
    )
    if call.ids is not None:
        places = np.where(places < 0, -1, np.append(call.ids, -1)[places])
    if scores.dtype != expected.dtype or found.dtype != np.int64:
        return f"types {scores.dtype}, {found.dtype}"
    if not np.array_equal(found, places):
        return "indices"
    return None if np.array_equal(scores, expected) else "scores"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--first", type=int, default=0)
    args = parser.parse_args()
    different = 0
    for seed in range(args.first, args.first + args.calls):
        if reason := differs(random_search(seed)):
            different += 1
            print(f"seed {seed}: {reason}: {random_search(seed)._replace(queries=None, vectors=None)}")
    print(f"{args.calls} searches, {different} different")


if __name__ == "__main__":
    main()
