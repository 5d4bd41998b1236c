"""`dmlcpu search`, and indices as the op of jobs: the same as in memory, in blocks of any size."""

import json
import os
import shutil

import ml_dtypes
import numpy as np
import pytest

from dmlcpu.batch import JobsError, plan_jobs, run_jobs
from dmlcpu.cli import main
from dmlcpu.common.block_reader import InMemory
from dmlcpu.errors import DmlError
from dmlcpu.search import FloatIndex, Int8Index
from dmlcpu.search.blocks import build, build_floats, load_index

RNG = np.random.default_rng(0)
VECTORS = RNG.standard_normal((500, 12)).astype(np.float32)
QUERIES = RNG.standard_normal((70, 12)).astype(np.float32)
CODES = RNG.integers(0, 255, (500, 12)).astype(np.uint8)
OUT = RNG.random((70, 500)) < 0.5
RANGES = np.vstack([np.full(12, -3), np.full(12, 3)]).astype(np.float32)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    arrays = {"v": VECTORS, "q": QUERIES, "codes": CODES, "ids": np.arange(500) * 7, "ranges": RANGES, "out": OUT}
    arrays["mask"] = np.arange(500) % 3 == 0
    arrays["allowed"] = np.arange(0, 100) * 7
    for name, array in arrays.items():
        np.save(f"{name}.npy", array)
    return tmp_path


def same(path, expected):
    with np.load(path) as found:
        return all(
            np.array_equal(found[name], each) for name, each in zip(("scores", "indices"), expected, strict=True)
        )


def assert_stored(path, expected):
    built = load_index(path)
    assert type(built) is type(expected)
    assert repr(built) == repr(expected)
    for name, array in expected.stored.arrays().items():
        assert np.array_equal(getattr(built.stored, name), array)


@pytest.mark.parametrize(
    ("vectors", "options"),
    [
        (VECTORS, {}),
        (VECTORS, {"metric": "l2", "ids": np.arange(500) * 7, "keeps_floats": True}),
        (CODES, {"metric": "cosine"}),
        (CODES, {"metric": "cosine", "ranges": RANGES}),
    ],
)
def test_built_in_blocks(folder, vectors, options):
    counts, row = [], vectors[0].nbytes
    built = build(InMemory(vectors), "a.index", **options, block_bytes=33 * row + 5, progress=counts.append)
    assert (built, counts) == (500, [33] * 15 + [5])
    floats = {"floats": True} if options.pop("keeps_floats", False) else {}
    assert_stored("a.index", Int8Index(vectors, **options, **floats))


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64", "bfloat16"])
@pytest.mark.parametrize("metric", ["ip", "l2", "cosine"])
def test_floats_built_in_blocks(folder, metric, dtype):
    counts, vectors = [], (VECTORS + 3).astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    ids = np.arange(500) * 7 if metric == "l2" else None
    block_bytes = 33 * vectors[0].nbytes + 5
    built = build_floats(InMemory(vectors), "a.index", metric, ids=ids, block_bytes=block_bytes, progress=counts.append)
    assert (built, counts) == (500, [33] * 15 + [5])
    expected = FloatIndex(vectors, metric, ids)
    assert_stored("a.index", expected)
    loaded = FloatIndex.load("a.index")
    assert loaded.stored.limits == expected.stored.limits
    assert loaded.space.factor == expected.space.factor
    assert loaded.space.centre.tolist() == expected.space.centre.tolist()


@pytest.mark.parametrize("function", [build, build_floats])
def test_a_later_block_that_is_refused_leaves_nothing(folder, function):
    bad, before = VECTORS.copy(), sorted(folder.iterdir())
    bad[77, 3] = np.nan
    with pytest.raises(DmlError, match=r"Index: vectors\[77, 3\] is nan; allowed: finite numbers"):
        function(InMemory(bad), "a.index", block_bytes=33 * bad[0].nbytes)
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
    assert "500 vectors in a.index" in capsys.readouterr().err
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


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("build nosuch.npy -o a.index", "nosuch.npy: No such file"),
        ("build ids.npy -o a.index", "ids.npy: an array of 1 dimensions; allowed: a matrix"),
        ("build v.npy -o a.index --ids ranges.npy", "FloatIndex: ids.dtype is float32; allowed: integers"),
        ("build v.npy -o a.index --ranges ranges.npy", "vectors.dtype is float32; allowed: int8 or uint8"),
        (
            "build codes.npy -o a.index --floats rescore",
            "Int8Index: vectors.dtype is uint8; allowed: floats, to be kept",
        ),
        ("build bad.npy -o a.index", "FloatIndex: vectors[77, 3] is nan; allowed: finite numbers"),
        ("build bad.npy -o a.index --floats drop", "Int8Index: vectors[77, 3] is nan; allowed: finite numbers"),
        ("build v.npy -o .", ".: within, or around, the file of vectors; allowed: an output that the search does not"),
        ("build v.npy -o others", "a folder of other files; allowed: an index, an empty folder, or nothing"),
        ("query nosuch q.npy -k 1 -o x.npz", "nosuch: No such file"),
        (
            "query v.npy q.npy -k 1 -o x.npz",
            "path is 'v.npy', a file and no index; allowed: a folder that FloatIndex.save",
        ),
        (
            "query ok.index ranges.npy -k 1 -o x.npz --rescore 2",
            "rescore is 2; allowed: None, as the index has no floats",
        ),
        (
            "query ok.index ranges.npy -k 1 -o x.npz --mask q.npy",
            "mask.dtype is float32; allowed: bool",
        ),
        (
            "query float.index q.npy -k 1 -o x.npz --rescore 2",
            "FloatIndex.search: rescore is 2; allowed: none: floats are",
        ),
        ("query float.index other.npy -k 1 -o x.npz", "FloatIndex.search: queries.shape is (2, 5); allowed: (M, 12)"),
        ("query float.index q.npy -k 1 -o x.npz --exclude v.npy", "FloatIndex.search: exclude"),
        ("query ok.index other.npy -k 1 -o x.npz", "queries.shape is (2, 5); allowed: (M, 12)"),
        ("query ok.index q.npy -k 1 -o x.txt", "the suffix '.txt'; allowed: .npy"),
        ("query ok.index bad.npy -k 1 -o x.npz", "queries[77, 3] is nan"),
    ],
)
def test_refusals_leave_nothing(folder, capsys, command, message):
    bad = VECTORS.copy()
    bad[77, 3] = np.nan
    np.save("bad.npy", bad)
    np.save("other.npy", np.ones((2, 5)))
    (folder / "others").mkdir()
    (folder / "others" / "file").touch()
    Int8Index(VECTORS).save("ok.index")
    FloatIndex(VECTORS).save("float.index")
    before = sorted(path.name for path in folder.iterdir())
    assert main(["search", *command.split()]) == 2
    assert message in capsys.readouterr().err
    assert sorted(path.name for path in folder.iterdir()) == before


@pytest.mark.parametrize(
    ("command", "found"),
    [
        ("query a.index q.npy -k 1 -o a.index/vectors.npz", "within, or around, the file of index"),
        ("query link q.npy -k 1 -o a.index/new.npz", "within, or around, the file of index"),
        ("query a.index q.npz::q -k 1 -o q.npz", "the file of queries"),
        ("query a.index q.npy -k 1 -o link.npz --mask mask.npz", "the file of mask"),
        ("query a.index q.npy -k 1 -o file:mask.npz --allowlist mask.npz", "the file of allowlist"),
        ("query a.index q.npy -k 1 -o o.zarr --exclude o.zarr/mask.npy", "within, or around, the file of exclude"),
        ("build a.index/vectors.npy -o a.index", "within, or around, the file of vectors"),
    ],
)
def test_no_input_is_overwritten(folder, capsys, command, found):
    Int8Index(CODES).save("a.index")
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
    assert f": {found}; allowed: an output that the search does not read" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_usage(capsys):
    assert main(["search"]) == 2
    assert main(["search", "query", "a", "b", "-k", "-1", "-o", "c"]) == 2
    assert "an integer of at least 0" in capsys.readouterr().err
    assert main(["search", "build", "--help"]) == 0
    assert "--metric" in capsys.readouterr().out


def job(**attrs):
    return {"op": "a.index", "inputs": {"queries": "q.npy"}, "attrs": {"k": 5, **attrs}, "output": "found.npz"}


@pytest.mark.parametrize("memory", [None, (64 << 20) + 2000])
def test_an_index_is_the_op_of_a_job(folder, memory):
    index = Int8Index(VECTORS, "l2", floats=True)
    index.save("a.index")
    jobs = [{**job(rescore=2), "output": {"scores": "scores.npy", "indices": "indices.npy"}}]
    plan = plan_jobs(jobs, directory=folder, max_memory=memory).jobs[0]
    assert plan.outputs == {"scores": "(70, 5) float32", "indices": "(70, 5) int64"}
    assert plan.in_blocks == (memory is not None)
    run = run_jobs(jobs, directory=folder, max_memory=memory, progress=False)
    assert (run.done, run.failed) == (1, 0)
    for name, expected in zip(("scores", "indices"), index.search(QUERIES, 5, rescore=2), strict=True):
        assert np.array_equal(np.load(f"{name}.npy"), expected)


@pytest.mark.parametrize("memory", [None, (64 << 20) + 2000])
def test_a_float_index_is_the_op_of_a_job(folder, memory):
    index = FloatIndex(VECTORS, "cosine", np.arange(500) * 7)
    index.save("a.index")
    lists = [(np.flatnonzero(each) * 7).tolist() for each in OUT]
    for attrs in ({}, {"exclude": lists}, {"exclude": OUT.tolist()}, {"allowlist": [7, 14, 21]}):
        jobs = [{**job(**attrs), "output": {"scores": "scores.npy", "indices": "indices.npy"}}]
        plan = plan_jobs(jobs, directory=folder, max_memory=memory).jobs[0]
        assert plan.outputs == {"scores": "(70, 5) float64", "indices": "(70, 5) int64"}
        assert plan.in_blocks == (memory is not None)
        run = run_jobs(jobs, directory=folder, max_memory=memory, progress=False)
        assert (run.done, run.failed) == (1, 0)
        given = {**attrs, **({"exclude": OUT} if "exclude" in attrs else {})}
        for name, expected in zip(("scores", "indices"), index.search(QUERIES, 5, **given), strict=True):
            assert np.array_equal(np.load(f"{name}.npy"), expected)


def test_a_changed_index_is_searched_again(folder):
    (folder / "jobs.jsonl").write_text(json.dumps(job()))
    Int8Index(VECTORS).save("a.index")
    counts = []
    for change in (False, False, True):
        if change:
            Int8Index(VECTORS[::-1]).save("a.index")
        result = run_jobs("jobs.jsonl", progress=False)
        counts.append((result.done, result.done_before))
    assert counts == [(1, 0), (0, 1), (1, 0)]
    assert same("found.npz", Int8Index(VECTORS[::-1]).search(QUERIES, 5))


def test_an_index_whose_files_are_overwritten_is_read_again(folder):
    Int8Index(VECTORS, "l2").save("a.index")
    Int8Index(VECTORS[::-1] * 2, "l2").save("b.index")
    run_jobs([job()], directory=folder, progress=False)
    shutil.copytree("b.index", "a.index", dirs_exist_ok=True, copy_function=shutil.copyfile)
    assert run_jobs([job()], directory=folder, progress=False).done == 1
    assert same("found.npz", Int8Index(VECTORS[::-1] * 2, "l2").search(QUERIES, 5))


@pytest.mark.parametrize("content_hash", [False, True])
def test_files_of_an_index_that_change_in_place(folder, content_hash):
    """The folder keeps its time: the files' own times count, or what is in them."""
    (folder / "jobs.jsonl").write_text(json.dumps(job()))
    Int8Index(VECTORS, "l2").save("a.index")
    Int8Index(VECTORS[::-1], "l2").save("b.index")
    counts = []
    for change in (False, False, True):
        before = os.stat("a.index")
        for name in os.listdir("b.index") if change else ():
            shutil.copyfile(f"b.index/{name}", f"a.index/{name}")
        assert os.stat("a.index").st_mtime_ns == before.st_mtime_ns
        result = run_jobs("jobs.jsonl", content_hash=content_hash, progress=False)
        counts.append((result.done, result.done_before))
    assert counts == [(1, 0), (0, 1), (1, 0)]
    assert same("found.npz", Int8Index(VECTORS[::-1], "l2").search(QUERIES, 5))


def test_an_index_of_the_same_size_and_time_is_another_by_hash(folder):
    (folder / "jobs.jsonl").write_text(json.dumps(job()))
    for vectors, done in ((VECTORS, 1), (VECTORS, 0), (VECTORS[::-1], 1)):
        Int8Index(vectors).save("a.index")
        for path in (*(folder / "a.index").iterdir(), folder / "a.index"):
            os.utime(path, (1, 1))
        assert run_jobs("jobs.jsonl", content_hash=True, progress=False).done == done


@pytest.mark.parametrize("output", ["a.index/vectors.npy", "a.index/new.npy", "link.index/ids.npy"])
def test_no_file_of_an_index_is_overwritten(folder, output):
    Int8Index(VECTORS, ids=np.arange(500)).save("a.index")
    os.symlink("a.index", "link.index")
    with pytest.raises(JobsError, match=r"an input at the op a\.index|within an input or an output"):
        run_jobs([{**job(), "output": {"scores": output}}], directory=folder, progress=False)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"op": "nosuch.index"}, "No such file or directory"),
        ({"op": "foreign.index"}, "index.json is missing"),
        ({"attrs": {"k": -1}}, "attrs.k: -1; allowed: an integer of at least 0"),
        ({"attrs": {"k": 1, "rescore": 2}}, "attrs.rescore: 2; allowed: None, as the index has no floats"),
        ({"attrs": {"k": 1, "n": 2}}, "attrs.n: unknown; allowed: queries, k, mask, allowlist, exclude, rescore"),
        ({"attrs": {}}, "attrs.k: missing"),
        ({"inputs": {"queries": "ids.npy"}}, "inputs.queries"),
    ],
)
def test_jobs_that_are_not_right(folder, change, message):
    Int8Index(VECTORS).save("a.index")
    (folder / "foreign.index").mkdir()
    with pytest.raises(JobsError) as caught:
        run_jobs([{**job(), **change}], directory=folder, progress=False)
    assert message in str(caught.value)


def test_a_full_disk_names_the_index(folder, capsys, monkeypatch):
    def write(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("dmlcpu.search.storage._write_header", write)
    assert main(["search", "build", "v.npy", "-o", "a.index", "--quiet"]) == 1
    assert capsys.readouterr().err == f"dmlcpu: {folder / 'a.index'}: No space left on device\n"
