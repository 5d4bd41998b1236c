"""The benchmarks that asv runs. Run them from asv_bench/: `asv run --quick --python=same -b overhead`.

Not with `--launch-method forkserver`: in forked processes dmlcpu uses one thread.
"""

import os

# Every contender has the same threads, two unless DMLCPU_BENCH_THREADS says otherwise; peers.py tells those that do
# not read the environment. OpenBLAS has one, because its threads spin longer after a call than any rest between
# contenders. All of it before NumPy loads.
THREADS = int(os.environ.get("DMLCPU_BENCH_THREADS", "2"))
os.environ["DMLCPU_NUM_THREADS"] = str(THREADS)
os.environ["OMP_NUM_THREADS"] = str(THREADS)
os.environ["OPENBLAS_NUM_THREADS"] = "1"
