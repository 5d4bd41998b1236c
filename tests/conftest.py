import gc

import hypothesis
import pytest

from dmlcpu.runtime import threads

# Compiling on first use takes seconds, which is no reason to fail an example.
hypothesis.settings.register_profile("dmlcpu", deadline=None, max_examples=150)
hypothesis.settings.load_profile("dmlcpu")


@pytest.fixture(autouse=True, scope="module")
def _collections_are_short():
    """Spare the garbage collector what is there before a file's tests: it took 0.3 s to look through Numba's objects."""
    gc.collect()
    gc.freeze()


@pytest.fixture(params=[1, 2, 5], ids=lambda n: f"{n}-threads")
def thread_count(request):
    """Run the test with work cut into 1, 2 and 5 shares, however small it is."""
    with threads.use_budget(request.param, grain=1):
        yield request.param


@pytest.fixture
def small_blocks(monkeypatch):
    """Let operators read blocks of 512 bytes, where they may choose."""
    for name in ("operators.top_k", "operators.scatter_nd", "products"):
        monkeypatch.setattr(f"dmlcpu.{name}.blocks.BLOCK", 512)
    monkeypatch.setattr("dmlcpu.operators.top_k.blocks._RUN", 64)


@pytest.fixture(autouse=True)
def _same_threads_afterwards():
    before = threads.get_num_threads()
    yield
    assert threads.get_num_threads() == before, "the test changed the number of threads and did not restore it"
