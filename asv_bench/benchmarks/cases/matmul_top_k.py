"""Cases of matmul_top_k."""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

import dmlcpu
from dmlcpu import reference

from ..torch_peer import tensor, torch_package
from .case import Case, table


class SearchInputs(NamedTuple):
    a: np.ndarray  # (M, K), queries
    b: np.ndarray  # (K, N), the transpose of vectors
    k: int


@dataclass(frozen=True)
class MatmulTopKCase(Case):
    m: int
    n: int
    depth: int
    k: int
    packs: bool = True

    def __str__(self):
        return f"{self.m} queries, {self.n}x{self.depth} s8, k={self.k} {'packed' if self.packs else 'as they lie'}"

    def shrunk(self):
        return replace(self, m=min(self.m, 9), n=min(self.n, 200), depth=min(self.depth, 40), k=min(self.k, 10))

    def inputs(self):
        rng = np.random.default_rng(0)
        vectors = rng.integers(-127, 128, (self.n, self.depth), np.int8)
        return SearchInputs(rng.integers(-127, 128, (self.m, self.depth), np.int8), vectors.T, self.k)

    def work(self, results):
        return self.m * self.depth * self.n, "products"

    def expected(self, calls):
        return tuple(reference.matmul_top_k(*self.inputs()))

    def _inputs(self):
        inputs = self.inputs()
        return inputs._replace(b=dmlcpu.pack_b(inputs.b)) if self.packs else inputs

    def dmlcpu(self):
        arguments = self._inputs()
        return lambda: dmlcpu.matmul_top_k(*arguments)

    def dmlcpu_bound(self):
        return dmlcpu.bind(dmlcpu.matmul_top_k, *self._inputs())

    def dmlcpu_out(self):
        arguments = self._inputs()
        out = np.empty((self.m, self.k), np.int32), np.empty((self.m, self.k), np.int64)
        return lambda: dmlcpu.matmul_top_k(*arguments, out=out)

    def numpy(self):
        """Multiply in float32, where sums of up to 1,040 products of bytes are exact, and partition."""
        a, b, k = self.inputs()
        queries, vectors = a.astype(np.float32), np.ascontiguousarray(b.astype(np.float32))

        def call():
            scores = queries @ vectors
            indices = np.argpartition(scores, -k)[:, -k:]
            values = np.take_along_axis(scores, indices, axis=-1)
            order = np.lexsort((indices, -values))
            values, indices = (np.take_along_axis(each, order, axis=-1) for each in (values, indices))
            return values.astype(np.int32), indices

        return call

    def torch(self):
        torch = torch_package()
        a, b, k = self.inputs()
        queries, vectors = tensor(a), tensor(b)
        return lambda: torch.topk(torch._int_mm(queries, vectors), k)


SHAPES = table(
    *(MatmulTopKCase(m, 100_000, 384, 10, packs) for m in (1, 32, 1_024) for packs in (True, False)),
    MatmulTopKCase(32, 100_000, 384, 100),
)
TABLES = {"matmul_top_k": SHAPES}
TINY = MatmulTopKCase(16, 64, 64, 10)
