"""Imports within the package go one way, those for type checkers as well."""

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import dmlcpu

ROOT = Path(dmlcpu.__file__).parent
FILES = {".".join(path.relative_to(ROOT.parent).with_suffix("").parts): path for path in ROOT.rglob("*.py")}
MODULES = {name.removesuffix(".__init__"): path for name, path in FILES.items() if name != "dmlcpu.__init__"}


def imported(path):
    """Return the modules of the package that a file imports, anywhere in it."""
    nodes = [node for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.ImportFrom)]
    names = {(node.module, alias.name) for node in nodes for alias in node.names}
    return {f"{module}.{name}" if f"{module}.{name}" in MODULES else module for module, name in names} & MODULES.keys()


def test_there_is_no_circle():
    graph = {name: imported(path) - {name} for name, path in MODULES.items()}
    assert "dmlcpu.directml.feature_level" in graph["dmlcpu.directml.base"]
    list(TopologicalSorter(graph).static_order())  # a CycleError names the modules
