"""Exact search among float vectors, compared with flat indices, on usual and on hostile data."""

from importlib.util import find_spec

import numpy as np

from . import THREADS
from .packages import package

# Name: data, vectors, dimensions, k, metric.
SIZES = {
    "normal 100000x384 k 10": ("normal", 100_000, 384, 10, "ip"),
    "clusters 100000x384 k 10, cosine": ("clusters", 100_000, 384, 10, "cosine"),
    "normal 100000x384 k 100": ("normal", 100_000, 384, 100, "ip"),
    "normal 1000000x128 k 10": ("normal", 1_000_000, 128, 10, "ip"),
    "clusters 200000x768 k 10, l2": ("clusters", 200_000, 768, 10, "l2"),
    "hostile: a dimension shifted 100 sigma": ("shifted 100", 100_000, 384, 10, "ip"),
    "hostile: a dimension shifted 1000 sigma, cosine": ("shifted 1000", 100_000, 384, 10, "cosine"),
    "hostile: 5 % of a dimension at -9999, l2": ("missing", 100_000, 384, 10, "l2"),
    "hostile: a vector times 1e6, l2": ("far", 100_000, 384, 10, "l2"),
    "hostile: two groups 1000 sigma apart, l2": ("groups", 100_000, 384, 10, "l2"),
    "hostile: all equal, l2": ("equal", 100_000, 384, 10, "l2"),
    "hostile: integers with ties, ip": ("integers", 100_000, 384, 10, "ip"),
}
QUERIES = (1, 32, 1024)
_CENTRES = 2000


def data(kind, count, depth, metric):
    """Return vectors, and 1,024 queries: some of the vectors, a little changed."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((count, depth), np.float32)
    if kind == "clusters":
        centres = rng.standard_normal((min(_CENTRES, count), depth), np.float32)
        x = centres[rng.integers(0, len(centres), count)] + np.float32(0.3) * x
    elif kind.startswith("shifted"):
        x[:, depth // 3] += float(kind.split()[1])
    elif kind == "missing":
        x[rng.random(count) < 0.05, -1] = -9999
    elif kind == "far":
        x[0] *= 1e6
    elif kind == "groups":
        x[:, -1] += 1000 * rng.integers(0, 2, count)
    elif kind == "equal":
        x[:] = x[0]
    elif kind == "integers":
        x = rng.integers(0, 3, (count, depth)).astype(np.float32)
        x[:, 12:] = 0
    queries = x[rng.integers(0, count, max(QUERIES))]
    if kind != "integers":
        queries = queries + np.float32(0.1) * rng.standard_normal(queries.shape, np.float32)
    if metric == "cosine":
        x, queries = (each / np.linalg.norm(each, axis=1, keepdims=True) for each in (x, queries))
    return x, queries


def dmlcpu(vectors, metric):
    return package("dmlcpu.search").FloatIndex(vectors, metric).search


def faiss_flat(vectors, metric):
    faiss = package("faiss")
    faiss.omp_set_num_threads(THREADS)
    index = (faiss.IndexFlatL2 if metric == "l2" else faiss.IndexFlatIP)(vectors.shape[1])
    index.add(vectors)
    return index.search


def torch(vectors, metric):
    """Write all products, then select; of cosines, vectors have the length 1."""
    torch = package("torch")
    torch.set_num_threads(THREADS)
    b = torch.from_numpy(vectors)
    squares = (b * b).sum(1)

    def call(queries, k):
        products = torch.from_numpy(queries) @ b.T
        if metric == "l2":
            products = squares - 2 * products
        best = torch.topk(products, k, largest=metric != "l2")
        return best.values.numpy(), best.indices.numpy()

    return call


def sklearn(vectors, metric):
    """Search with brute force; of cosines and products, vectors of the length 1 by distance."""
    neighbors = package("sklearn.neighbors")
    if metric == "ip":
        raise NotImplementedError("scikit-learn has no inner products")
    found = neighbors.NearestNeighbors(algorithm="brute", n_jobs=THREADS).fit(vectors)
    return lambda queries, k: found.kneighbors(queries, k)


CONTENDERS = {"dmlcpu": dmlcpu, "faiss flat": faiss_flat, "torch": torch, "scikit-learn": sklearn}
_PACKAGES = {"faiss flat": "faiss", "scikit-learn": "sklearn"}  # others are named like theirs


class FloatSearch:
    """Of one size; exact_search.py --floats has all."""

    params = (
        [name for name in CONTENDERS if find_spec(_PACKAGES.get(name, name))],
        ["normal 100000x384 k 10", "hostile: two groups 1000 sigma apart, l2"],
        QUERIES,
    )
    param_names = ("implementation", "vectors", "queries")
    version = "1"

    def setup(self, implementation, vectors, queries):
        kind, count, depth, self.k, metric = SIZES[vectors]
        stored, asked = data(kind, count, depth, metric)
        self.search, self.queries = CONTENDERS[implementation](stored, metric), asked[:queries]
        self.search(self.queries, self.k)  # kernels are compiled, and threads are started

    def time_search(self, implementation, vectors, queries):
        return self.search(self.queries, self.k)


class Exclude:
    """1,024 queries among 100,000 x 384, each without 200 vectors of its own, or with all."""

    params = ([0, 200],)
    param_names = ("excluded",)
    version = "1"

    def setup(self, excluded):
        vectors, self.queries = data("normal", 100_000, 384, "ip")
        self.index = package("dmlcpu.search").FloatIndex(vectors)
        places = np.random.default_rng(1).integers(0, len(vectors), (len(self.queries), excluded))
        self.exclude = places if excluded else None
        self.time_search(excluded)

    def time_search(self, excluded):
        return self.index.search(self.queries, 10, exclude=self.exclude)


class BuildFloats:
    """Build an index of 100,000 x 384 float32 numbers, compared with a copy of them."""

    version = "1"

    def setup(self):
        self.index = package("dmlcpu.search").FloatIndex
        self.x = np.random.default_rng(0).standard_normal((100_000, 384), np.float32)
        self.index(self.x[:1000])

    def time_build(self):
        return self.index(self.x)

    def time_copy(self):
        return np.copy(self.x)
