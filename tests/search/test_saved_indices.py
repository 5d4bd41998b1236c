"""Indices on disk are replaced whole, by whatever process, and others' files are not."""

import os
import shutil

import numpy as np
import pytest

import dmlcpu
from dmlcpu.search import FloatIndex, Int8Index, storage

VECTORS = np.random.default_rng(0).standard_normal((20, 6)).astype(np.float32)


@pytest.fixture
def saved(tmp_path):
    Int8Index(VECTORS, "l2", ids=np.arange(20) * 2, floats=True).save(tmp_path / "a.index")
    return tmp_path / "a.index"


def contents(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_failed_save_leaves_the_older_index(saved, monkeypatch):
    before = {path.name: path.read_bytes() for path in saved.iterdir()}
    monkeypatch.setattr("dmlcpu.files.folders.put_folder", lambda *_: (_ for _ in ()).throw(OSError("full")))
    with pytest.raises(OSError, match="full"):
        Int8Index(VECTORS).save(saved)
    assert {path.name: path.read_bytes() for path in saved.iterdir()} == before
    assert contents(saved.parent) == ["a.index"]


def test_other_things_are_not_replaced(tmp_path):
    (tmp_path / "file").write_text("mine")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "mine.txt").write_text("mine")
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "index.json").write_text("{}")
    shutil.copytree(tmp_path / "site", tmp_path / "page")
    (tmp_path / "page" / "page.html").write_text("mine")
    before = sorted(tmp_path.rglob("*"))
    for name in ("file", "folder", "site", "page"):
        with pytest.raises(dmlcpu.DmlError, match=r"Int8Index.save: path is .*; allowed: an index, an empty folder"):
            Int8Index(VECTORS).save(tmp_path / name)
    with pytest.raises(dmlcpu.DmlError, match=r"Int8Index\.save: path is ''; allowed: the path of a folder"):
        Int8Index(VECTORS).save("")
    assert sorted(tmp_path.rglob("*")) == before
    (tmp_path / "empty").mkdir()
    os.symlink(tmp_path / "empty", tmp_path / "link")
    Int8Index(VECTORS).save(tmp_path / "link")
    assert Int8Index.load(tmp_path / "empty").ntotal == 20


def test_an_index_that_is_replaced_while_it_is_loaded_is_loaded_anew(saved, monkeypatch):
    other = Int8Index(VECTORS[::-1], "l2", ids=np.arange(20) * 3, floats=True)
    read = storage.mapped

    def replaced(operator, field, path):
        if field == "squares.npy":
            monkeypatch.setattr(storage, "mapped", read)
            other.save(saved)
        return read(operator, field, path)

    monkeypatch.setattr(storage, "mapped", replaced)
    found = Int8Index.load(saved).stored.arrays()
    for name, array in other.stored.arrays().items():
        assert np.array_equal(found[name], array), name


@pytest.mark.skipif(os.name == "nt", reason="there are no locks by which a folder in use is known")
def test_what_a_killed_save_has_left_is_removed_or_brought_back(tmp_path):
    vectors = np.ones((3, 4), np.float32)
    FloatIndex(vectors).save(tmp_path / "x.index")
    (tmp_path / "x.index").rename(tmp_path / ".x.index.0a.old.part")  # between two renames
    (tmp_path / ".x.index.0a.part").mkdir()
    (tmp_path / ".x.index.0b.part").mkdir()
    FloatIndex(vectors[:2]).save(tmp_path / "x.index")
    assert [path.name for path in tmp_path.iterdir()] == ["x.index"]
    assert FloatIndex.load(tmp_path / "x.index").ntotal == 2
