"""What the processes of the benchmarks share. asv imports every module here, then forks a process for each cell.

PyTorch takes longer to import than most cells take to measure. Its import starts no thread; a test looks.
"""

import contextlib
import importlib

with contextlib.suppress(ImportError):
    importlib.import_module("torch")
