"""Shared by the tests of asv_bench: its files, and the check of its results."""

import importlib
import os
import sys
from pathlib import Path
from types import ModuleType

import numpy as np

ASV_BENCH = Path(__file__).parents[2] / "asv_bench"


def load(name: str) -> ModuleType:
    """Import a file of asv_bench, which is not a package of the distribution."""
    path, environment = list(sys.path), dict(os.environ)
    sys.path.insert(0, str(ASV_BENCH))
    try:
        return importlib.import_module(name)
    finally:
        sys.path[:] = path
        os.environ.clear()
        os.environ.update(environment)


def expected(implementation, case):
    """Return the reference's results, as a tuple of arrays."""
    # The first call and the untimed one have been in place, too; onnxruntime copies.
    return case.expected(calls=1 if implementation == "onnxruntime" else 3)


def as_arrays(result):
    """Return a contender's result as a tuple of arrays."""
    return load("benchmarks.peers").arrays(result)


def check(implementation, case, result):
    """Compare a result with the reference: ours to the bit, a peer's within the case's tolerance."""
    wanted, found = expected(implementation, case), as_arrays(result)
    if not implementation.startswith("dmlcpu"):
        # Peers promise neither the order of ties nor the last bit.
        peer, truth = found[0].astype(np.float64), wanted[0].astype(np.float64)
        np.testing.assert_allclose(peer, truth, rtol=0, atol=case.tolerance)
        assert found[0].dtype == wanted[0].dtype
        return
    assert len(found) == len(wanted)
    for ours, theirs in zip(found, wanted, strict=True):
        if implementation == "dmlcpu compiled":
            ours = ours.reshape(theirs.shape)  # a desc may have more dimensions
        assert ours.shape == theirs.shape
        assert ours.tobytes() == theirs.astype(ours.dtype).tobytes()
