"""`dmlcpu search`: the same as in memory, in blocks of any size."""

import json
import os

import ml_dtypes
import numpy as np
import pytest
from vector_files import CODES, OUT, QUERIES, RANGES, VECTORS, assert_stored, same

from dmlcpu.cli import main
from dmlcpu.common.block_reader import InMemory
from dmlcpu.errors import DmlError
from dmlcpu.search import FloatIndex, Int8Index
from dmlcpu.search.blocks import build
from dmlcpu.search.storage import new_index


class Counted(InMemory):
    """Vectors of which the sizes of blocks that are read are noted, but not of single ones."""

    def __init__(self, array):
        super().__init__(array)
        self.counts = []

    def read(self, region=None, into=None):
        if (rows := region[0].stop - region[0].start) > 1:
            self.counts.append(rows)
        return super().read(region, into)


def build_in_blocks(vectors, **options):
    """Build an index in blocks of 33 vectors; return their sizes."""
    source = Counted(vectors)
    with new_index("a.index", "build_index") as index:
        build(source, index, block_bytes=33 * vectors[0].nbytes + 5, **options)
    return source.counts


@pytest.mark.parametrize(
    ("vectors", "options"),
    [
        (VECTORS, {"floats": "drop"}),
        (VECTORS, {"metric": "l2", "ids": np.arange(500) * 7, "floats": "rescore"}),
        (CODES, {"metric": "cosine"}),
        (CODES, {"metric": "cosine", "ranges": RANGES}),
    ],
)
def test_built_in_blocks(folder, vectors, options):
    assert build_in_blocks(vectors, **options) == [33] * 15 + [5]
    floats = {"floats": True} if options.pop("floats", None) == "rescore" else {}
    assert_stored("a.index", Int8Index(vectors, **options, **floats))


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64", "bfloat16"])
@pytest.mark.parametrize("metric", ["ip", "l2", "cosine"])
def test_floats_built_in_blocks(folder, metric, dtype):
    vectors = (VECTORS + 3).astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    ids = np.arange(500) * 7 if metric == "l2" else None
    assert build_in_blocks(vectors, metric=metric, ids=ids) == [33] * 15 + [5]
    expected = FloatIndex(vectors, metric, ids)
    assert_stored("a.index", expected)
    loaded = FloatIndex.load("a.index")
    assert loaded.stored.limits == expected.stored.limits
    assert loaded.space.factor == expected.space.factor
    assert loaded.space.centre.tolist() == expected.space.centre.tolist()


@pytest.mark.parametrize("floats", ["exact", "rescore", "drop"])
def test_a_later_block_that_is_refused_leaves_nothing(folder, floats):
    bad, before = VECTORS.copy(), sorted(folder.iterdir())
    bad[77, 3] = np.nan
    with pytest.raises(DmlError, match=r"Index: vectors\[77, 3\] is nan; allowed: finite numbers"):
        build_in_blocks(bad, floats=floats)
    assert sorted(folder.iterdir()) == before


@pytest.mark.parametrize(
    ("options", "index"),
    [
        ("v.npy", lambda: FloatIndex(VECTORS)),
        ("v.npy --metric cosine --ids ids.npy", lambda: FloatIndex(VECTORS, "cosine", np.arange(500) * 7)),
        ("v.npy --metric l2 --floats drop", lambda: Int8Index(VECTORS, "l2")),
        (
            "v.npy --metric l2 --ids ids.npy --floats rescore",
            lambda: Int8Index(VECTORS, "l2", np.arange(500) * 7, floats=True),
        ),
        ("codes.npy --metric cosine", lambda: Int8Index(CODES, "cosine")),
        ("codes.npy --metric cosine --ranges ranges.npy", lambda: Int8Index(CODES, "cosine", ranges=RANGES)),
    ],
)
def test_built_and_searched(folder, capsys, options, index):
    expected = index()
    assert main(["search", "build", *options.split(), "-o", "a.index"]) == 0
    assert "dmlcpu: 1 done, in " in capsys.readouterr().err
    assert_stored("a.index", expected)
    more = {"--mask mask.npy": {"mask": np.arange(500) % 3 == 0}, "": {}}
    more["--allowlist allowed.npy"] = {"allowlist": np.arange(0, 100) * 7}
    more["--exclude out.npy"] = {"exclude": OUT}
    if isinstance(expected, Int8Index) and expected.has_floats:
        more["--rescore 3"] = {"rescore": 3}
    for words, arguments in more.items():
        command = ["search", "query", "a.index", "q.npy", "-k", "4", "-o", "found.npz", *words.split()]
        assert main([*command, "--quiet"]) == 0
        assert capsys.readouterr().err == ""
        assert same("found.npz", expected.search(QUERIES, 4, **arguments))


BUILD, QUERY = "  search build (a.index): ", "  search query (x.npz): "


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("build nosuch.npy -o a.index", f"{BUILD}VECTORS: 'nosuch.npy', which does not exist; allowed: a file"),
        ("build ids.npy -o a.index", f"{BUILD}VECTORS.dtype: int64; allowed: int8, uint8"),
        ("build row.npy -o a.index", f"{BUILD}VECTORS.shape: (12,); allowed: a matrix (N, D)"),
        ("build v.npy -o a.index --ids ranges.npy", f"{BUILD}--ids.dtype: float32; allowed: integers"),
        ("build v.npy -o a.index --ranges ranges.npy", f"{BUILD}VECTORS.dtype: float32; allowed: int8 or uint8"),
        ("build codes.npy -o a.index --floats rescore", f"{BUILD}VECTORS.dtype: uint8; allowed: floats, to be kept"),
        ("build v.npy -o .", "  search build (.): -o: '.', which an input is within; allowed: a folder without inputs"),
        (
            "build v.npy -o others",
            "a folder of other files in the place of the output; allowed: a folder with index.js",
        ),
        ("build ../v.npy -o .", "-o: '.'; allowed: a path that ends with the name of the folder"),
        ("build v.npy -o a.index --manifest a.index/m", "--manifest is 'a.index/m'; allowed: a file that is not"),
        ("build v.npy -o a.index --log a.index/l", "--log is 'a.index/l'; allowed: a file that is not one of"),
        ("query ok.index q.npy -k 1 -o x.npz --log ok.index/ids.npy", "--log is 'ok.index/ids.npy'; allowed: a file"),
        ("build v.npy -o a.index --retry-failed", "--retry-failed is given without a manifest; allowed: a manifest"),
        ("build v.npy -o q.npy", "-o: 'q.npy': there is a file, where a folder is to be; allowed: "),
        (
            "query nosuch q.npy -k 1 -o x.npz",
            f"{QUERY}INDEX: './nosuch': No such file or directory; allowed: a file or",
        ),
        ("query ok.index ranges.npy -k 1 -o x.npz --rescore 2", f"{QUERY}--rescore: 2; allowed: None"),
        ("query ok.index ranges.npy -k 1 -o x.npz --mask q.npy", f"{QUERY}--mask.dtype: float32; allowed: bool"),
        ("query float.index q.npy -k 1 -o x.npz --rescore 2", f"{QUERY}--rescore: unknown; allowed: queries, k, mask"),
        ("query float.index other.npy -k 1 -o x.npz", f"{QUERY}QUERIES.shape: (2, 5); allowed: (M, 12)"),
        ("query float.index q.npy -k 1 -o x.npz --exclude v.npy", f"{QUERY}--exclude"),
        ("query ok.index other.npy -k 1 -o x.npz", f"{QUERY}QUERIES.shape: (2, 5); allowed: (M, 12)"),
        ("query ok.index q.npy -k 1 -o x.txt", "-o: 'x.txt'; allowed: a file with one of the suffixes .npz"),
        ("query ok.index q.npy -k 1 -o x.npy", "-o: 'x.npy', which holds one array"),
    ],
)
def test_refusals_leave_nothing(folder, capsys, command, message):
    assert_leaves_nothing(folder, command, 2)
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("build bad.npy -o a.index", "search build (a.index): FloatIndex: vectors[77, 3] is nan; allowed: finite"),
        ("build bad.npy -o a.index --floats drop", "search build (a.index): Int8Index: vectors[77, 3] is nan; allowed"),
        ("build v.npy -o site", "search build (site): build_index: path is "),
        ("query ok.index bad.npy -k 1 -o x.npz", "search query (x.npz): Int8Index.search: queries[77, 3] is nan"),
    ],
)
def test_failures_leave_nothing(folder, capsys, command, message):
    assert_leaves_nothing(folder, command, 1)
    assert f"dmlcpu: failed: {message}" in capsys.readouterr().err


def assert_leaves_nothing(folder, command, code):
    bad = VECTORS.copy()
    bad[77, 3] = np.nan
    np.save("bad.npy", bad)
    np.save("other.npy", np.ones((2, 5)))
    np.save("row.npy", VECTORS[0])
    for name, file in (("others", "file"), ("site", "index.json")):
        (folder / name).mkdir()
        (folder / name / file).write_text("{}")
    Int8Index(VECTORS).save("ok.index")
    FloatIndex(VECTORS).save("float.index")
    before = {path: path.is_file() and path.read_bytes() for path in folder.rglob("*")}
    assert main(["search", *command.split()]) == code
    assert {path: path.is_file() and path.read_bytes() for path in folder.rglob("*")} == before


WITHIN = "within an input or an output; allowed: a file outside of it"


@pytest.mark.parametrize(
    ("command", "found"),
    [
        ("query a.index q.npy -k 1 -o a.index/vectors.npz", f"'a.index/vectors.npz', {WITHIN}"),
        ("query link q.npy -k 1 -o a.index/new.npz", f"'a.index/new.npz', {WITHIN}"),
        ("query a.index q.npy -k 1 -o a.index/vectors.npy", "'a.index/vectors.npy', an input of this command; allowed"),
        ("query plain q.npy -k 1 -o plain/new.npz", f"'plain/new.npz', {WITHIN}"),
        ("query plain q.npy -k 1 -o plain/vectors.zarr", f"'plain/vectors.zarr', {WITHIN}"),
        ("query a.index q.npz::q -k 1 -o q.npz", "'q.npz', an input of this command; allowed: a file that no job"),
        ("query a.index q.npy -k 1 -o link.npz --mask mask.npz", "'link.npz', an input of this command; allowed"),
        ("query a.index q.npy -k 1 -o file:mask.npz --allowlist mask.npz", "mask.npz', an input of this command"),
        ("query a.index q.npy -k 1 -o o.zarr --exclude o.zarr/mask.npy", "'o.zarr', which an input is within; allowed"),
        ("build a.index/vectors.npy -o a.index", "'a.index', which an input is within; allowed: a folder without"),
        ("build plain/vectors.npy -o plain", "'plain', which an input is within; allowed: a folder without"),
        ("build o.zarr::mask -o o.zarr", "'o.zarr', an input of this command; allowed: a file that no job reads"),
    ],
)
def test_no_input_is_overwritten(folder, capsys, command, found):
    Int8Index(CODES).save("a.index")
    Int8Index(CODES).save("plain")
    np.savez("q.npz", q=CODES[:3])
    np.savez("mask.npz", np.ones(500, bool))
    np.save("q.npy", CODES[:3])
    os.symlink("a.index", "link")
    os.symlink("mask.npz", "link.npz")
    os.mkdir("o.zarr")
    np.save("o.zarr/mask.npy", OUT[:3])
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    command = command.replace("file:", f"file://{folder}/")
    assert main(["search", *command.split()]) == 2
    assert found in capsys.readouterr().err
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_commands_are_recorded_and_resumed(folder, capsys):
    """As other jobs: a changed input or output runs again, also a file of the index that changes in place."""
    build_it = ["search", "build", "v.npy", "-o", "a.index", "--manifest", "m", "--json"]
    query_it = ["search", "query", "a.index", "q.npy", "-k", "3", "-o", "found.npz", "--manifest", "n", "--json"]

    def done(command):
        assert main(command) == 0
        summary = json.loads(capsys.readouterr().out)
        return summary["done"], summary["done_before"]

    assert [done(build_it), done(query_it), done(build_it), done(query_it)] == [(1, 0), (1, 0), (0, 1), (0, 1)]
    np.save("a.index/scales.npy", np.load("a.index/scales.npy") * 2)  # in place
    assert [done(build_it), done(query_it)] == [(1, 0), (1, 0)]
    assert_stored("a.index", FloatIndex(VECTORS))
    np.save("v.npy", VECTORS[::-1])
    assert [done(build_it), done(query_it)] == [(1, 0), (1, 0)]
    assert same("found.npz", FloatIndex(VECTORS[::-1]).search(QUERIES, 3))
    (folder / "found.npz").unlink()
    assert [done(build_it), done(query_it)] == [(0, 1), (1, 0)]


def test_a_plan_of_a_command(folder, capsys):
    assert main(["search", "build", "v.npy", "-o", "a.index", "--dry-run"]) == 0
    assert "a.index: build_index by FloatIndex: vectors (500, 12) -> index (500, 12) float32" in capsys.readouterr().out
    assert not (folder / "a.index").exists()


def test_an_option_of_all_commands(folder, capsys):
    assert main(["search", "build", "v.npy", "-o", "a.index", "--debug", "--dry-run"]) == 0


def test_usage(capsys):
    assert main(["search"]) == 2
    assert main(["search", "query", "a", "b", "-k", "-1", "-o", "c"]) == 2
    assert "an integer of at least 0" in capsys.readouterr().err
    for action, option in (("build", "--metric"), ("query", "--rescore")):
        assert main(["search", action, "--help"]) == 0
        shown = capsys.readouterr().out
        assert option in shown
        assert f"\n  dmlcpu search {action} " in shown
        assert "\nExit codes: 0 " in shown
