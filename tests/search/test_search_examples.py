"""The examples of search: figures of the page, on the data that is in the repository."""

import runpy
import sys
from pathlib import Path

import numpy as np
import pytest

from dmlcpu.search import Int8Index

FOLDER = Path(__file__).parents[2] / "examples" / "search"
PAGE = (FOLDER.parents[1] / "docs" / "vector_search.rst").read_text("utf-8")


@pytest.fixture
def script(monkeypatch):
    """Return the names of a script of the folder."""
    monkeypatch.syspath_prepend(str(FOLDER))
    yield lambda name: runpy.run_path(str(FOLDER / name))
    sys.modules.pop("embedder", None)


def test_recall_of_the_digits_is_that_of_the_page(script):
    recall = script("recall.py")
    stored, labels, asked, wanted = recall["digits"]()
    told = ["0.996", "1.000", "0.946"]
    assert np.allclose([rate for _, _, rate in recall["rivals"](stored, asked, ())], list(map(float, told)), atol=1e-3)
    assert all(f"     - {rate}\n" in PAGE for rate in told)
    found = Int8Index(stored, metric="cosine").search(asked, 10)[1]
    for places in (found, recall["exact"](stored, asked)):
        assert f"{recall['accuracy'](places, labels, wanted):.1%}" == "95.3%"
    assert "95.3 %" in PAGE
    assert [f"{rate:.1%}" for rate in recall["ties"](stored, asked)] == ["0.3%", "0.0%"]


def test_rivals_are_named_with_their_bytes(script):
    x = np.random.default_rng(0).standard_normal((60, 16)).astype(np.float32)
    depths = [(8, "float16", 2), (4, "float32", 4), (8, "int8", 1)]
    ways = list(script("recall.py")["rivals"](x, x[:5], depths))
    assert [nbytes for _, nbytes, _ in ways] == [16, 16, 8, 16, 16, 8]
    assert ways[-1][0] == "int8, the first 8 dimensions"


def test_texts_are_paragraphs_and_docstrings(script, tmp_path):
    embedder = script("embedder.py")
    pages = embedder["paragraphs"]()
    assert len(pages) > 200
    assert any("Ties go by index" in text for _, text in pages)
    (tmp_path / "a.py").write_text(f'"""{"A module of words. " * 3}\n\nMore."""\ndef f():\n    """Short."""\n')
    (tmp_path / "b.py").write_text("no python at all")
    assert embedder["docstrings"](tmp_path) == [("A module of words. " * 3).strip()]


@pytest.mark.filterwarnings("default")
def test_questions_find_their_paragraphs(script, capsys):
    pytest.importorskip("wordllama")
    script("texts.py")["main"](["which index comes first if elements are equal?"])
    assert "top_k.rst: **Ties go by index.**" in capsys.readouterr().out
