"""Every table of cases, of every operator: dmlcpu beside its peers."""

from .common import MODULES
from .peers import IMPLEMENTATIONS, Comparison, cells


def benchmark(table, cases, implementations):
    """Return the benchmark of a table."""

    def time_call(self, cell):
        return self.call()

    name = "".join(map(str.capitalize, table.split("_")))
    params = cells(cases, implementations)
    return type(name, (Comparison,), {"__module__": __name__, "params": params, "cases": cases, "time_call": time_call})


def benchmarks():
    """Yield the benchmark of each table; peers do the cases of an operator's first one."""
    for module in MODULES.values():
        for number, (table, cases) in enumerate(module.TABLES.items()):
            yield benchmark(table, cases, ["dmlcpu"] if number else IMPLEMENTATIONS)


globals().update({each.__name__: each for each in benchmarks()})
