"""The benchmarks that asv runs. Run them from asv_bench/: `asv run --quick --python=same -b overhead`."""

import os

# Every contender has the same number of threads, two unless DMLCPU_BENCH_THREADS says otherwise; onnx_peer.py and
# torch_peer.py set it where the environment does not. OpenBLAS has one thread, because its threads spin longer after a
# call than any rest between contenders. The environment must be set before NumPy loads.
THREADS = int(os.environ.get("DMLCPU_BENCH_THREADS", "2"))
os.environ["DMLCPU_NUM_THREADS"] = str(THREADS)
os.environ["OMP_NUM_THREADS"] = str(THREADS)
os.environ["OPENBLAS_NUM_THREADS"] = "1"
