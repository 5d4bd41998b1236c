"""Links between pages, ```text <page.rst#place>`__``, are plain reStructuredText: they work unbuilt as well."""

import posixpath

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util import logging

_log = logging.getLogger(__name__)


def _lead_to_pages(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    for link in doctree.findall(nodes.reference):
        page, found, place = link.get("refuri", "").partition(".rst")
        if not found or ":" in page:
            continue
        target = posixpath.normpath(posixpath.join(posixpath.dirname(docname), page))
        if target in app.env.found_docs:
            link["refuri"] = app.builder.get_relative_uri(docname, target) + place
            link["internal"] = True
        else:
            _log.warning("no page %s.rst", target, location=link)


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("doctree-resolved", _lead_to_pages)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
