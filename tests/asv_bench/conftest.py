import pytest
from asv_files import load


def all_tables():
    """Return the dictionaries of cases, each once: those of compare.py, and those of benchmarks that have their own."""
    modules = [load(f"benchmarks.{name}") for name in ("kernels", "memory", "ratios")] + [load("past.calls")]
    of_classes = [each.cases for module in modules for each in vars(module).values() if hasattr(each, "cases")]
    of_modules = [module.CASES for module in modules if hasattr(module, "CASES")]
    tables = [*load("compare").TABLES.values(), *of_classes, *of_modules]
    return {id(table): table for table in tables}.values()


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Shrink all cases, take no rests, and occupy no cores."""
    for table in all_tables():
        for name, case in table.items():
            monkeypatch.setitem(table, name, case.shrunk())
    monkeypatch.setattr(load("benchmarks.conditions"), "REST", 0)
    monkeypatch.setattr(load("benchmarks.conditions"), "WARM", 0)
    monkeypatch.setattr(load("benchmarks.conditions"), "BUSY_CORES", 0)
    monkeypatch.setattr(load("benchmarks.overhead"), "CALLS", 2)
    load("benchmarks.peers").build.cache_clear()
