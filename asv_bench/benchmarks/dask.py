"""top_k on Dask arrays beside Dask's own, on its threads. Dask's topk gives only values, argtopk the indices."""

import numpy as np

from . import THREADS
from .packages import package

# Name: shape, chunks, k and axis.
CASES = {
    "64000000 in chunks of 4000000 k 100": ((64_000_000,), (4_000_000,), 100, 0),
    "1000x64000 in chunks of 250x8000 k 10": ((1_000, 64_000), (250, 8_000), 10, 1),
    "1000x64000 in chunks of 125x64000 k 10": ((1_000, 64_000), (125, 64_000), 10, 1),
    "1000x64000 in chunks of 125x8000 k 10 axis 0": ((1_000, 64_000), (125, 8_000), 10, 0),
    "1000x64000 in chunks of 250x8000 k 1000": ((1_000, 64_000), (250, 8_000), 1_000, 1),
}


class TopK:
    params = (["dmlcpu", "dask topk and argtopk", "dask topk"], list(CASES))
    version = "1"
    param_names = ("implementation", "case")

    def setup(self, implementation, case):
        self.dask, arrays = package("dask"), package("dask.array")
        shape, chunks, k, axis = CASES[case]
        x = arrays.from_array(np.random.default_rng(0).random(shape, np.float32), chunks=chunks)
        if implementation == "dmlcpu":
            self.lazy = package("dmlcpu.interop.dask").top_k(x, k, axis=axis)
        else:
            self.lazy = [arrays.topk(x, k, axis)]
            self.lazy += [arrays.argtopk(x, k, axis)] if "argtopk" in implementation else []
        self.time_call(implementation, case)  # kernels are compiled, and threads are started

    def time_call(self, implementation, case):
        return self.dask.compute(*self.lazy, scheduler="threads", num_workers=THREADS)
