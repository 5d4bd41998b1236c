"""What the processes of the benchmarks share. asv imports every module here, then forks a process for each cell.

PyTorch takes longer to import, and Numba to get ready to load a kernel, than most cells take to measure. Neither starts
a thread; a test looks.
"""

import contextlib
import importlib

import numba

numba.njit(lambda: None)()
with contextlib.suppress(ImportError):
    importlib.import_module("torch")
