"""Random searches, each from a seed of its own, compared with the reference.

python tests/search/random_searches.py --calls 50000
"""

import argparse
import collections
from typing import Any, NamedTuple
from unittest import mock

import ml_dtypes
import numpy as np

from dmlcpu import reference
from dmlcpu.reference.searches import int8_knn
from dmlcpu.runtime import threads
from dmlcpu.search import FloatIndex, Int8Index, codes, exact, groups, vectors as stored_vectors

TYPES = ("int8", "uint8", "float32", "float16", "float64")
FLOATS = tuple(map(np.dtype, ("float32", "float16", ml_dtypes.bfloat16, "float64")))
METRICS = ("ip", "l2", "cosine")


class RandomSearch(NamedTuple):
    """A search among bytes, and how it is to be made."""

    queries: np.ndarray
    vectors: np.ndarray
    k: int
    metric: str
    ids: np.ndarray | None
    mask: np.ndarray | None
    rescore: int | None
    threads: int


class FloatSearch(NamedTuple):
    """A search among floats, and how it is to be made."""

    queries: np.ndarray
    vectors: np.ndarray
    k: int
    metric: str
    ids: np.ndarray | None
    allowed: np.ndarray | None  # bool (M, N): what the options leave
    options: dict[str, Any]
    threads: int
    cut: int  # queries before it are searched by themselves
    constants: dict[str, int]  # of exact.py
    sample: int  # vectors that tell what bounds are like
    kind: str


def random_search(seed: int) -> RandomSearch | FloatSearch:
    """Draw a search: small, with ties, duplicates, zeros and extreme numbers."""
    return _among_floats(seed) if seed % 2 else _among_bytes(seed)


def _among_bytes(seed: int) -> RandomSearch:
    rng = np.random.default_rng(seed)
    depth, count, rows = int(rng.integers(1, 70)), int(rng.integers(0, 130)), int(rng.integers(0, 14))
    vectors = _numbers(rng, count, depth)
    ids = rng.permutation(10 * count)[:count] if rng.random() < 0.3 else None
    mask = None
    if rng.random() < 0.4:
        shape = (rows, count) if rng.random() < 0.5 else (count,)
        mask = rng.random(shape) < rng.choice([0.02, 0.5, 0.9])
    k = int(rng.integers(0, count + 4)) if rng.random() < 0.5 else min(count, int(rng.integers(0, 12)))
    rescore = int(rng.integers(1, 5)) if vectors.dtype.kind == "f" and rng.random() < 0.3 else None
    metric = str(rng.choice(METRICS))
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


def hostile(rng: Any, count: int, depth: int, kind: str) -> np.ndarray:
    """Return float64 (count, depth) of a kind that makes codes say little, ranks equal or sums inexact."""
    x = rng.standard_normal((count, depth))
    some = rng.random(count) < 0.2
    match kind:
        case "one far dimension":
            x[:, depth // 3] += rng.choice([30, 100, 1000])
        case "missing values":
            x[some, -1] = -9999
        case "one far row":
            x[:1] *= 1e6
        case "two groups":
            x[:, -1] += 1000 * some
        case "many groups":
            centres = 10.0 ** rng.integers(1, 5) * rng.standard_normal((rng.integers(2, 30), depth))
            x += centres[rng.integers(0, len(centres), count)]
        case "all equal":
            x[:] = x[:1]
        case "small integers":
            x = rng.integers(-2, 3, (count, depth)).astype(np.float64)
        case "duplicates":
            x = x[rng.integers(0, max(1, count // 20), count)] if count else x
        case "zeros":
            x[some] = 0
        case "tiny":
            x *= 10.0 ** rng.integers(-44, -30)
        case "huge":
            x *= 10.0 ** rng.integers(30, 38)
        case "tiny beyond float32":
            x *= 10.0 ** rng.integers(-320, -150)
        case "huge beyond float32":
            x *= 10.0 ** rng.integers(100, 149)
        case "many powers of ten":
            x *= 10.0 ** rng.integers(-30, 30, (count, 1))
        case "powers of ten in each row":
            x *= 10.0 ** rng.integers(-15, 15, (count, depth))
        case "heavy tails":
            x = rng.standard_t(1.5, (count, depth))
        case "one direction":
            x = x[:1] * rng.integers(-3, 4, (count, 1)) * 2.0 ** rng.integers(-20, 20, (count, 1))
        case "far from the origin":
            x += 10.0 ** rng.integers(2, 9)
        case "nearly equal":
            x = x[:1] * (1 + 1e-7 * rng.standard_normal((count, depth)))
    return x


KINDS = (
    "normal", "one far dimension", "missing values", "one far row", "two groups", "many groups", "all equal",
    "small integers", "duplicates", "zeros", "tiny", "huge", "tiny beyond float32", "huge beyond float32",
    "many powers of ten", "powers of ten in each row", "heavy tails", "one direction", "far from the origin",
    "nearly equal",
)  # fmt: skip


def as_type(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Return floats in a type; those beyond it, or beyond what an index takes, are the greatest."""
    most = min(float(ml_dtypes.finfo(dtype).max), codes.GREATEST)
    return x.clip(-most, most).astype(dtype)


def _among_floats(seed: int) -> FloatSearch:
    rng = np.random.default_rng(seed)
    depth = int(rng.choice([1, 2, 3, 7, 8, 9, 16, 20, 33, 64, 100, 130, 384]))
    count = min(int(rng.choice([0, 1, 40, 200, 700, 2000, 2000])), 40_000 // depth)
    kind, metric = KINDS[seed // 2 % len(KINDS)], str(rng.choice(METRICS))
    x = hostile(rng, count, depth, kind)
    near = x[rng.integers(0, count, 4)] if count else hostile(rng, 4, depth, kind)
    near[2:] *= 1 + 1e-3 * rng.standard_normal((2, depth))
    other = hostile(rng, 2, depth, str(rng.choice(KINDS)))
    q = np.concatenate([near, other, np.zeros((1, depth)), near[:2] * rng.choice([-1, 1e4, 1e-4])])
    q = q[rng.random(len(q)) < 0.8]
    dtype = FLOATS[rng.integers(4)]
    of_queries = dtype if rng.random() < 0.6 else FLOATS[rng.integers(4)]
    queries, vectors = as_type(q, of_queries), as_type(x, dtype)
    ids = rng.permutation(10 * count + 1)[:count] if rng.random() < 0.3 else None
    allowed, options = _options(rng, len(q), count, ids)
    k = int(rng.choice([1, 2, 10, 30])) if rng.random() < 0.9 else int(rng.integers(0, count + 4))
    return FloatSearch(queries, vectors, k, metric, ids, allowed, options, int(rng.integers(1, 5)),
                       int(rng.integers(0, len(q) + 1)), _constants(rng), int(rng.choice([16, 100, 4096])),
                       kind)  # fmt: skip


def _constants(rng: Any) -> dict[str, int]:
    """Draw numbers that make small searches go all ways."""
    if rng.random() < 0.1:
        return {"_SMALL": exact._SMALL}
    return {
        "_SMALL": 0,
        "_CANDIDATES": int(rng.choice([1, 4, 16])),
        "_TIMES": int(rng.choice([1, 2, 5])),
        "_WIDER": int(rng.choice([2, 8])),
        "_MOST": int(rng.choice([1 << 14, 1 << 14, 200])),
        "_FEWEST": int(rng.choice([1, 2, 8])),
        "_FEW_QUERIES": int(rng.choice([1, 8])),
        "_SCANNED": int(rng.choice([1, 3, 64])),
        "_CANDIDATES_AT_A_TIME": int(rng.choice([1, 40, 1 << 22])),
        "_CONVERTED": int(rng.choice([1, 1000, 1 << 22])),
        "_DEFEATS": int(rng.choice([1, 5, 1000])),
    }


def _options(rng: Any, rows: int, count: int, ids: np.ndarray | None) -> tuple[np.ndarray | None, dict[str, Any]]:
    """Draw what may be found: bool (rows, count), and the arguments of a search that say so."""
    names = np.arange(count) if ids is None else ids
    allowed, options = np.ones((rows, count), bool), {}
    if rng.random() < 0.3:
        shape = (rows, count) if rng.random() < 0.5 else (count,)
        options["mask"] = rng.random(shape) < rng.choice([0.02, 0.5, 0.9])
        allowed &= options["mask"]
    if rng.random() < 0.2:
        lists = [names[rng.random(count) < 0.5] for _ in range(rows if rng.random() < 0.5 else 1)]
        listed = [[*each.tolist(), 10**15, *each[:2].tolist()] for each in lists]
        allowed &= [np.isin(names, each) for each in lists]
        options["allowlist"] = listed if len(lists) != 1 or rows == 1 else listed[0]
    if rng.random() < 0.3:
        out = rng.random((rows, count)) < rng.choice([0.02, 0.5])
        allowed &= ~out
        starts = np.cumsum([0, *out.sum(axis=1)])
        forms = [out, [names[each].tolist() for each in out]]
        if ids is None:
            forms.append((starts, np.nonzero(out)[1]))
        options["exclude"] = forms[rng.integers(len(forms))]
    return (allowed, options) if options else (None, options)


def part_of(options: dict[str, Any], rows: int, part: slice) -> dict[str, Any]:
    """Return the options of some queries."""
    found = dict(options)
    for name, value in options.items():
        if isinstance(value, tuple):
            starts = value[0][part.start : part.stop + 1]
            found[name] = starts - starts[0], value[1][starts[0] : starts[-1]]
        elif (
            name == "exclude"
            or (isinstance(value, np.ndarray) and value.ndim == 2)
            or (name == "allowlist" and isinstance(value[0] if value else None, list) and len(value) == rows)
        ):
            found[name] = value[part]
    return found


def differs(call: RandomSearch | FloatSearch, passes: collections.Counter[int] | None = None) -> str | None:
    """Return how a search differs from the reference, or None; count the queries of floats in `passes`."""
    found, expected, ways = (_of_floats if isinstance(call, FloatSearch) else _of_bytes)(call)
    if passes is not None:
        passes.update(ways)
    places = expected[1]
    if call.ids is not None:
        places = np.where(places < 0, -1, np.append(call.ids, -1)[places])
    if found[0].dtype != expected[0].dtype or found[1].dtype != np.int64:
        return f"types {found[0].dtype}, {found[1].dtype}"
    if found[0].shape != expected[0].shape:
        return f"shape {found[0].shape}"
    if not np.array_equal(found[1], places):
        return "indices"
    return None if found[0].tobytes() == expected[0].tobytes() else "scores"


def _of_bytes(call: RandomSearch) -> tuple[Any, Any, list[int]]:
    index = Int8Index(call.vectors, call.metric, call.ids, floats=True if call.rescore else None)
    with threads.use_budget(call.threads, grain=1):
        found = index.search(call.queries, call.k, mask=call.mask, rescore=call.rescore)
    scores = found[0] + found[0].dtype.type(0)  # -0 becomes 0, as in the reference's
    expected = int8_knn(call.queries, call.vectors, call.k, call.metric, mask=call.mask, rescore=call.rescore)
    return (scores, found[1]), (expected[0] + expected[0].dtype.type(0), expected[1]), []


def _of_floats(call: FloatSearch) -> tuple[Any, Any, list[int]]:
    *found, passes = search(call)
    expected = reference.exact_knn(call.queries, call.vectors, call.k, call.metric, mask=call.allowed)
    return found, expected, passes.tolist()


def search(call: FloatSearch) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Search as the call says, in two parts; return scores, indices and passes."""
    rows = len(call.queries)
    with (
        threads.use_budget(call.threads, grain=1),
        mock.patch.multiple(exact, **call.constants),
        mock.patch.object(stored_vectors, "SAMPLE", call.sample),
        mock.patch.object(groups, "_LOOKED_AT", call.sample),
        mock.patch.object(codes, "_NUMBERS", 1000 if "_MOST" in call.constants else codes._NUMBERS),
    ):
        index = FloatIndex(call.vectors, call.metric, call.ids)
        parts = [
            index.search(call.queries[part], call.k, **part_of(call.options, rows, part), report=True)
            for part in (slice(0, call.cut), slice(call.cut, rows))
        ]
    scores, indices = (np.concatenate([part[place] for part in parts]) for place in (0, 1))
    return scores, indices, np.concatenate([part[2].passes for part in parts])


def described(call: RandomSearch | FloatSearch) -> str:
    """Return a line about a search."""
    fields = {name: f"{value.dtype} {value.shape}" if isinstance(value, np.ndarray) else value
              for name, value in call._asdict().items()}  # fmt: skip
    return ", ".join(f"{name} {list(value) if name == 'options' else value}" for name, value in fields.items())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--first", type=int, default=0)
    args = parser.parse_args()
    different, passes = 0, collections.Counter()
    for seed in range(args.first, args.first + args.calls):
        call = random_search(seed)
        try:
            reason = differs(call, passes)
        except Exception as error:
            reason = repr(error)
        if reason:
            different += 1
            print(f"seed {seed}: {reason}: {described(call)}", flush=True)
    print(f"{args.calls} searches, {different} different; queries of floats by passes: {dict(sorted(passes.items()))}")


if __name__ == "__main__":
    main()
