import pytest


@pytest.fixture(autouse=True)
def _one_task_after_the_other():
    dask = pytest.importorskip("dask")
    with dask.config.set(scheduler="synchronous"):
        yield
