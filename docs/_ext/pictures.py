"""``.. chart:: charts/front.svg``: a chart in the reader's colors, and in the form for the page's width.

Beside the file are its forms: ``front-dark.svg``, ``front-narrow.svg`` and ``front-narrow-dark.svg``.
"""

import posixpath
from typing import ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective
from sphinx.writers.html5 import HTML5Translator

_FORMS = {"light": ("-narrow", ""), "dark": ("-narrow-dark", "-dark")}
_NARROW = "(max-width: 46em)"  # Furo's limit for a telephone


class _Pictures(nodes.General, nodes.Element):
    """The images of a chart, in the order of _FORMS."""


class Chart(SphinxDirective):
    """Show a chart whose other forms are beside it."""

    required_arguments = 1
    option_spec: ClassVar = {"alt": directives.unchanged_required}

    def run(self) -> list[nodes.Node]:
        stem, suffix = posixpath.splitext(self.arguments[0])
        images = [nodes.image(uri=stem + form + suffix) for pair in _FORMS.values() for form in pair]
        return [_Pictures("", *images, alt=self.options["alt"])]


def _visit(self: HTML5Translator, node: _Pictures) -> None:
    files = iter(posixpath.join(self.builder.imgpath, self.builder.images[image["uri"]]) for image in node)
    for mode in _FORMS:
        source = self.emptytag(node, "source", media=_NARROW, srcset=next(files))
        shown = self.emptytag(node, "img", src=next(files), alt=node["alt"], loading="lazy")
        self.body.append(f'<picture class="chart only-{mode}">{source}{shown}</picture>\n')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_node(_Pictures, html=(_visit, None))
    app.add_directive("chart", Chart)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
