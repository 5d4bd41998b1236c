"""What tests of searches share."""

import numpy as np
import pytest
from vector_files import CODES, OUT, QUERIES, RANGES, VECTORS

from dmlcpu.search import exact


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture
def codes_decide(monkeypatch):
    """Let small searches use codes."""
    monkeypatch.setattr(exact, "_SMALL", 0)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Where files of vectors are."""
    monkeypatch.chdir(tmp_path)
    arrays = {"v": VECTORS, "q": QUERIES, "codes": CODES, "ids": np.arange(500) * 7, "ranges": RANGES, "out": OUT}
    arrays["mask"] = np.arange(500) % 3 == 0
    arrays["allowed"] = np.arange(0, 100) * 7
    for name, array in arrays.items():
        np.save(f"{name}.npy", array)
    return tmp_path
