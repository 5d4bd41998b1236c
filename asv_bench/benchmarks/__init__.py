"""The benchmarks that asv runs. Run them from asv_bench/: `asv run --quick --python=same -b overhead`."""

import os

# Every contender has the same two threads; peers.py says so to those that do not read the environment. OpenBLAS has
# one, because its threads spin longer after a call than any rest between contenders. All of it before NumPy loads.
THREADS = 2
os.environ["DMLCPU_NUM_THREADS"] = str(THREADS)
os.environ["OMP_NUM_THREADS"] = str(THREADS)
os.environ["OPENBLAS_NUM_THREADS"] = "1"
