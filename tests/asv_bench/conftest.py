import pytest
from asv_files import load


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Shrink all cases, take no rests, and occupy no cores."""
    for table in load("compare").TABLES.values():
        for name, case in table.items():
            monkeypatch.setitem(table, name, case.shrunk())
    monkeypatch.setattr(load("benchmarks.conditions"), "REST", 0)
    monkeypatch.setattr(load("benchmarks.conditions"), "WARM", 0)
    monkeypatch.setattr(load("benchmarks.conditions"), "BUSY_CORES", 0)
    monkeypatch.setattr(load("benchmarks.overhead"), "CALLS", 2)
    load("benchmarks.peers").build.cache_clear()
