"""Exact search among vectors of bytes, beside other libraries: the k largest inner products."""

from importlib.util import find_spec

import numpy as np

from . import THREADS
from .packages import package

# Name: vectors, dimensions, k.
SIZES = {
    "100000x384 k 10": (100_000, 384, 10),
    "1000000x128 k 10": (1_000_000, 128, 10),
    "200000x100 k 10": (200_000, 100, 10),
    "200000x768 k 10": (200_000, 768, 10),
    "100000x384 k 100": (100_000, 384, 100),
}
QUERIES = (1, 32, 1024)
_SUMS = 1 << 26  # of those who write them, at a time


def data(count, depth):
    """Return vectors, and 1,024 queries: bytes as they come of embeddings, each scaled to its greatest."""
    rng = np.random.default_rng(0)
    return _bytes(rng, count, depth), _bytes(rng, max(QUERIES), depth)


def _bytes(rng, count, depth):
    found = np.empty((count, depth), np.int8)
    for start in range(0, count, 50_000):
        x = rng.standard_normal((min(50_000, count - start), depth), np.float32)
        found[start : start + 50_000] = np.rint(x * (127 / np.abs(x).max(axis=1, keepdims=True)))
    return found


def dmlcpu(vectors):
    index = package("dmlcpu.search").Int8Index(vectors)
    return index.search


def faiss_flat(vectors):
    """Search float32, which has these bytes exactly, too."""
    faiss = package("faiss")
    faiss.omp_set_num_threads(THREADS)
    index = faiss.IndexFlatIP(vectors.shape[1])
    index.add(vectors.astype(np.float32))
    return lambda queries, k: index.search(queries.astype(np.float32), k)


def faiss_sq8(vectors):
    """Search bytes, decoded to float32 one after the other."""
    faiss = package("faiss")
    faiss.omp_set_num_threads(THREADS)
    kind = faiss.ScalarQuantizer.QT_8bit_direct_signed
    index = faiss.IndexScalarQuantizer(vectors.shape[1], kind, faiss.METRIC_INNER_PRODUCT)
    index.add(vectors.astype(np.float32))
    return lambda queries, k: index.search(queries.astype(np.float32), k)


def usearch(vectors):
    search = package("usearch.index").search

    def call(queries, k):
        found = search(vectors, queries, k, "ip", exact=True, threads=THREADS, dtype="i8")
        return 1 - np.atleast_2d(found.distances), np.atleast_2d(found.keys).astype(np.int64)

    return call


def numkong(vectors):
    """Write all products, then let NumPy select."""
    numkong = package("numkong")
    packed = numkong.dots_pack(vectors, dtype="int8")

    def call(queries, k):
        sums = np.asarray(numkong.dots_packed(queries, packed, threads=THREADS))
        found = np.argpartition(sums, sums.shape[1] - k)[:, -k:]
        order = np.argsort(-np.take_along_axis(sums, found, 1), axis=1)
        found = np.take_along_axis(found, order, 1)
        return np.take_along_axis(sums, found, 1), found

    return call


def torch(vectors):
    """Write all products, then select. Fewer than 17 rows PyTorch does not multiply."""
    torch = package("torch")
    torch.set_num_threads(THREADS)
    b = torch.from_numpy(vectors).T

    def call(queries, k):
        rows = max(32, len(queries))
        padded = np.zeros((rows, queries.shape[1]), np.int8)
        padded[: len(queries)] = queries
        values, found = [], []
        for start in range(0, rows, step := max(32, _SUMS // vectors.shape[0])):
            sums = torch._int_mm(torch.from_numpy(padded[start : start + step]), b)
            best = torch.topk(sums[: max(0, len(queries) - start)], k)
            values.append(best.values)
            found.append(best.indices)
        return torch.cat(values).numpy(), torch.cat(found).numpy()

    return call


CONTENDERS = {
    "dmlcpu": dmlcpu,
    "faiss flat": faiss_flat,
    "faiss sq8": faiss_sq8,
    "usearch": usearch,
    "numkong": numkong,
    "torch": torch,
}


_PACKAGES = {"faiss flat": "faiss", "faiss sq8": "faiss", "dmlcpu": "dmlcpu"}  # others are named like theirs


class Search:
    """Of one size; exact_search.py has all."""

    params = (
        [name for name in CONTENDERS if find_spec(_PACKAGES.get(name, name))],
        ["100000x384 k 10"],
        QUERIES,
    )
    param_names = ("implementation", "vectors", "queries")
    version = "1"

    def setup(self, implementation, vectors, queries):
        count, depth, self.k = SIZES[vectors]
        stored, asked = data(count, depth)
        self.search, self.queries = CONTENDERS[implementation](stored), asked[:queries]
        self.search(self.queries, self.k)  # kernels are compiled, and threads are started

    def time_search(self, implementation, vectors, queries):
        return self.search(self.queries, self.k)


class Build:
    """An index of float32, 200,000 x 384, beside a copy of the same bytes."""

    version = "1"

    def setup(self):
        self.index = package("dmlcpu.search").Int8Index
        self.x = np.random.default_rng(0).standard_normal((200_000, 384), np.float32)
        self.index(self.x[:1000])

    def time_build(self):
        return self.index(self.x)

    def time_copy(self):
        return np.copy(self.x)
