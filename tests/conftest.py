import gc
import os

import hypothesis
import pytest

from dmlcpu.runtime import threads

# Where this is set, as in many containers, each process that a test starts would compile the package's modules from
# their text: 0.5 s of its 1.75.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# Compiling on first use takes seconds, which is no reason to fail an example.
hypothesis.settings.register_profile("dmlcpu", deadline=None, max_examples=150)
hypothesis.settings.load_profile("dmlcpu")


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Import and list all tests without the garbage collector, which would take a quarter of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_modifyitems(items):
    """Run what is slow first, so that no worker is left with it at the end.

    Warm-up comes before all: several processes of later tests would compile the same kernels at the same time.
    """
    items.sort(key=lambda item: (item.get_closest_marker("slow") is None, "test_warmup" not in item.nodeid))


@pytest.hookimpl(optionalhook=True, tryfirst=True)
def pytest_xdist_make_scheduler(config, log):
    """Let a worker that has done its tests take others' (`--dist worksteal`), unless the command says otherwise."""
    if config.getvalue("dist") == "load":
        from xdist.scheduler import WorkStealingScheduling

        return WorkStealingScheduling(config, log)
    return None


@pytest.fixture(autouse=True, scope="module")
def _collections_are_short():
    """Hide what is there before a file's tests from the garbage collector, which took 0.3 s to look through it."""
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
    for name in ("operators.top_k", "operators.scatter_nd", "indexing", "products"):
        monkeypatch.setattr(f"dmlcpu.{name}.blocks.BLOCK", 512)
    monkeypatch.setattr("dmlcpu.operators.top_k.blocks._RUN", 64)


@pytest.fixture(autouse=True)
def _same_threads_afterwards():
    before = threads.get_num_threads()
    yield
    assert threads.get_num_threads() == before, "the test changed the number of threads and did not restore it"
