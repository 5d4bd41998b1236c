"""Texts, and the small sentence embedding model in WordLlama's wheel."""

import ast
import re
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
_LEAST = 40  # characters of a text
_DIRECTIVE = re.compile(r"^(\.\.|>>>|:|\$|[=\-~*|+]{3})")


def load_model(dimensions=256):
    """Return a function of texts that returns their embeddings, float32 (N, dimensions)."""
    import wordllama

    folder = Path(wordllama.__file__).parent  # it contains the model's files, so nothing is downloaded
    model = wordllama.WordLlama.load(dim=256, cache_dir=folder, disable_download=True)
    return lambda texts: model.embed(texts)[:, :dimensions]


def paragraphs(folder=DOCS):
    """Return the paragraphs of the pages in a folder, each with its page's name."""
    found = []
    for page in sorted(folder.rglob("*.rst")):
        for block in page.read_text(encoding="utf-8").split("\n\n"):
            text = " ".join(block.split())
            if len(text) >= _LEAST and not _DIRECTIVE.match(block.strip()) and not block.startswith("   "):
                found.append((page.name, text))
    return found


def docstrings(folder):
    """Return the first paragraphs of the docstrings of a package's files, without importing any."""
    found = {}
    for file in sorted(Path(folder).rglob("*.py")):
        if {"tests", "test", "site-packages", "idlelib", "lib2to3"} & set(file.parts[len(Path(folder).parts) :]):
            continue
        try:
            tree = ast.parse(file.read_bytes())
        except SyntaxError:
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef | ast.Module):
                text = " ".join((ast.get_docstring(node) or "").split("\n\n")[0].split())
                if len(text) >= _LEAST:
                    found[text] = None
    return list(found)
