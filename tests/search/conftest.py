"""What tests of searches share."""

import numpy as np
import pytest

from dmlcpu.search import exact


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture
def codes_decide(monkeypatch):
    """Let small searches use codes."""
    monkeypatch.setattr(exact, "_SMALL", 0)
