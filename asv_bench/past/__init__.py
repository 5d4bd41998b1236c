"""The benchmarks of the history. Their cases import only what every version of dmlcpu has had."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))  # asv puts only this folder on the path
