"""The tables of cases of several operators, collected from the modules of `cases`."""

import importlib
from pathlib import Path

from dmlcpu.operators import OPERATORS

from .cases.case import table

_FOLDER = Path(__file__).parent / "cases"
MODULES = {
    name: importlib.import_module(f".cases.{name}", __package__)
    for name in (*OPERATORS, "at")
    if (_FOLDER / f"{name}.py").is_file()
}


def _all(part):
    return [case for module in MODULES.values() for case in getattr(module, part, ())]


# Calls of PyTorch's programs.
TORCH = table(*_all("TORCH"))

# Calls that use several threads, but are short enough for the start of the threads to count.
THREADED = table(*_all("THREADED"))


def tiny_cases(module):
    """Return the tiny cases of an operator: the usual one, and the same with other kinds of arguments."""
    return (*([module.TINY] if hasattr(module, "TINY") else []), *getattr(module, "TINY_OTHERS", ()))


# Calls so small that only the overhead is timed; of the sizes of the operators' own first examples.
TINY = {name: module.TINY for name, module in MODULES.items() if hasattr(module, "TINY")}

# The calls of several Python threads, in turns, with tiny ones and without.
MIDDLE = tuple(_all("MIXED"))
MIXED = (*TINY.values(), *MIDDLE)

TABLES = {
    **{name: cases for module in MODULES.values() for name, cases in module.TABLES.items()},
    "torch": TORCH,
    "threads": THREADED,
    "tiny": {f"{name}: {case}": case for name, module in MODULES.items() for case in tiny_cases(module)},
}
