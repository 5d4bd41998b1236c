"""The code blocks of the pages: as docutils finds them, and the sessions in them."""

import functools
import inspect
import re
import runpy
from pathlib import Path
from typing import NamedTuple

from docutils import nodes
from docutils.core import publish_doctree
from docutils.parsers.rst import Directive, directives, roles
from docutils.parsers.rst.directives import unchanged

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"

# The extension that expands the pages' templates for Sphinx.
IN_TEXT = runpy.run_path(str(DOCS / "_ext" / "operators_in_text.py"))
expanded = IN_TEXT["expanded"]

_CONSOLE = re.compile(r"^\.\. code-block:: console\n\n((?:   .*\n|\n)+)", re.MULTILINE)


class Session(NamedTuple):
    """A console block: its commands, each with its output."""

    page: Path
    commands: tuple[tuple[str, str], ...]


def pages():
    return sorted(path for path in DOCS.rglob("*.rst") if "_build" not in path.parts)


def name_of(path):
    return path.relative_to(ROOT).as_posix()


def sessions_of(page):
    """Return the console blocks of a page."""
    return [Session(page, tuple(_commands(block))) for block in _CONSOLE.findall(page.read_text("utf-8"))]


def _commands(block):
    for session in re.split(r"^\$ ", inspect.cleandoc(block), flags=re.MULTILINE)[1:]:
        command, _, output = session.partition("\n")
        while output.startswith("> "):  # the shell asks for the rest of the command
            more, _, output = output.removeprefix("> ").partition("\n")
            command += f"\n{more}"
        yield command, output


class _WithContent(Directive):
    """A directive of Sphinx whose content docutils reads as text."""

    has_content = True
    optional_arguments = 1000
    option_spec = dict.fromkeys(("class", "columns", "gutter", "link", "link-type", "sync"), unchanged)

    def run(self):
        found = nodes.container()
        self.state.nested_parse(self.content, self.content_offset, found)
        return [found]


class _WithoutBlocks(_WithContent):
    """A directive of Sphinx that has no code of the page: its content and options are not read."""

    option_spec = None

    def run(self):
        return []


def _read_sphinx():
    """Have docutils read what only Sphinx knows."""
    for name in ("grid", "grid-item-card", "tab-set", "tab-item", "glossary"):
        directives.register_directive(name, _WithContent)
    own = ("chart", "command-help", "feature-levels", "include", "kernel-table")
    auto = ("autoattribute", "autoclass", "autodata", "autoexception", "autofunction", "automethod", "automodule")
    for name in (*own, *auto, "autosummary", "currentmodule", "literalinclude", "toctree"):
        directives.register_directive(name, _WithoutBlocks)
    for name in ("attr", "class", "data", "doc", "exc", "file", "func", "meth", "mod", "obj", "ref", "term"):
        roles.register_generic_role(name, nodes.literal)


@functools.cache
def blocks_of(page):
    """Return the code blocks of a page: of each its language, "pycon" for doctests, and its text."""
    _read_sphinx()
    settings = {"report_level": 5, "halt_level": 5, "_disable_config": True}
    tree = publish_doctree(expanded(page.read_text("utf-8")), str(page), settings_overrides=settings)
    problems = [each.astext() for each in tree.findall(nodes.system_message) if each["level"] > 2]
    assert not problems, problems  # a directive that is not read may hide a block
    found = [("pycon", each.astext()) for each in tree.findall(nodes.doctest_block)]
    for each in tree.findall(nodes.literal_block):
        (language,) = set(each["classes"]) - {"code"} or {"none"}
        found.append((language, each.astext()))
    return found
