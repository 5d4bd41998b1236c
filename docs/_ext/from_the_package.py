"""Directives whose content comes from the package, so that the pages cannot say something else than it."""

import contextlib
import io
import os
from typing import Any
from unittest.mock import patch

from docutils import nodes
from operators_in_text import expanded, levels_of, list_table, table_of_levels
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from dmlcpu.cli import main
from dmlcpu.kernels import registry
from dmlcpu.kernels.gemm.table import Product


class FeatureLevels(SphinxDirective):
    """``.. feature-levels:: TOP_K1``: what each feature level allows for an operator's tensors."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        return self.parse_text_to_nodes(table_of_levels(levels_of(self.arguments[0])))


class KernelTable(SphinxDirective):
    """``.. kernel-table::``: the rows of all tables of kernels."""

    def run(self) -> list[nodes.Node]:
        head = ("Operator", "Stage", "Kernel", "Instruction set", "Tile", "Reads B as")
        rows = [
            (row.operator, row.stage, f"``{row.name}``", row.isa.name.lower(), *_product(row))
            for row in registry.rows()
        ]
        return self.parse_text_to_nodes(list_table("20 12 34 14 8 12", head, rows))


def _product(row: registry.Row) -> tuple[str, str]:
    return (f"{row.mr} x {row.nr}", ", ".join(row.rhs_layouts)) if isinstance(row, Product) else ("", "")


class CommandHelp(SphinxDirective):
    """``.. command-help:: run``: what ``dmlcpu run --help`` prints."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        with patch.dict(os.environ, COLUMNS="88"), contextlib.redirect_stdout(io.StringIO()) as help_:
            main([self.arguments[0], "--help"])
        text = help_.getvalue().strip()
        return [nodes.literal_block(text, text, language="text")]


def _expand(app: Sphinx, docname: str, source: list[str]) -> None:
    source[0] = expanded(source[0])


def _without_others(*event: Any) -> tuple[str, str | None] | None:
    """Leave out the keywords that sorts refuse."""
    *_, signature, returned = event
    return (signature.replace(", **others)", ")"), returned) if signature else None


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("source-read", _expand)
    app.connect("autodoc-process-signature", _without_others)
    app.add_directive("feature-levels", FeatureLevels)
    app.add_directive("kernel-table", KernelTable)
    app.add_directive("command-help", CommandHelp)
    return {"parallel_read_safe": True}
