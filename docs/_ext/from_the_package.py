"""Directives whose content comes from the package, so that the pages cannot say something else than it."""

import contextlib
import io
import os
from collections.abc import Iterable, Sequence
from unittest.mock import patch

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from dmlcpu.cli import main
from dmlcpu.descriptors.enums import OperatorType
from dmlcpu.descriptors.feature_level import SUPPORT, Allowed, Support
from dmlcpu.kernels import registry


class FeatureLevels(SphinxDirective):
    """``.. feature-levels:: TOP_K1``: what each feature level allows for an operator's tensors."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        support = SUPPORT[OperatorType[self.arguments[0]]]
        head = ("From level", "Tensors", "Dimensions", "Data types")
        rows = [
            (f"``{row.since.name.removeprefix('LEVEL_')}``", tensors, _span(allowed.dimensions), _types(allowed))
            for row in support
            for allowed, tensors in _grouped(row)
        ]
        return self.parse_text_to_nodes(list_table("12 33 15 40", head, rows))


class KernelTable(SphinxDirective):
    """``.. kernel-table::``: the lines of the registry."""

    def run(self) -> list[nodes.Node]:
        head = ("Operator", "Stage", "Kernel", "Instruction set", "Tile", "Reads B as")
        rows = [
            (entry.operator, entry.stage, f"``{entry.name}``", entry.isa.name.lower(), *_product(entry.product))
            for entry in registry.KERNELS
        ]
        return self.parse_text_to_nodes(list_table("20 12 34 14 8 12", head, rows))


def _product(product: registry.Product | None) -> tuple[str, str]:
    return (f"{product.mr} x {product.nr}", ", ".join(product.rhs_layouts)) if product else ("", "")


class CommandHelp(SphinxDirective):
    """``.. command-help:: run``: what ``dmlcpu run --help`` prints."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), patch.dict(os.environ, COLUMNS="88"):
            main([*self.arguments[0].split(), "--help"])
        text = printed.getvalue().strip()
        return [nodes.literal_block(text, text, language="text")]


def list_table(widths: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [".. list-table::", "   :header-rows: 1", f"   :widths: {widths}", ""]
    for row in (head, *rows):
        lines += [f"   {'* -' if i == 0 else '  -'} {cell}" for i, cell in enumerate(row)]
    return "\n".join(lines)


def _grouped(row: Support) -> list[tuple[Allowed, str]]:
    """Gather the tensors for which the same is allowed."""
    groups: dict[Allowed, list[str]] = {}
    for name, allowed in row.tensors.items():
        groups.setdefault(allowed, []).append(name)
    return [(allowed, ", ".join(names)) for allowed, names in groups.items()]


def _span(dimensions: range) -> str:
    first, last = dimensions[0], dimensions[-1]
    return str(first) if first == last else f"{first} to {last}"


def _types(allowed: Allowed) -> str:
    return ", ".join(member.name for member in allowed.types)


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("feature-levels", FeatureLevels)
    app.add_directive("kernel-table", KernelTable)
    app.add_directive("command-help", CommandHelp)
    return {"parallel_read_safe": True}
