"""Saved indices as the op of jobs, and jobs that build them."""

import json
import os
import shutil

import numpy as np
import pytest
from vector_files import OUT, QUERIES, VECTORS, assert_stored, same

from dmlcpu.batch import JobsError, plan_jobs, run_jobs
from dmlcpu.search import FloatIndex, Int8Index


def test_an_index_is_built_by_a_job_within_memory(folder):
    """Files that are read whole count; others are read in blocks."""
    vectors = np.tile(VECTORS, (400, 1))
    np.save("large.npy", vectors)
    np.savez("large.npz", vectors)
    job = {"op": "build-index", "inputs": {"vectors": "large.npy"}, "output": "large.index"}
    (plan,) = plan_jobs([job], max_memory="1M").jobs
    assert (plan.in_blocks, plan.peak_bytes <= 1 << 20, plan.read_bytes) == (True, True, vectors.nbytes)
    assert run_jobs([job], max_memory="1M").done == 1
    assert_stored("large.index", FloatIndex(vectors))
    with pytest.raises(JobsError, match=r"a job that needs 9\.\d+ MB of memory, 9\.\d+ MB of it for files"):
        run_jobs([{**job, "inputs": {"vectors": "large.npz"}}], max_memory="1M")
    jobs = [{**job, "output": "x.index"}, {**job, "inputs": {"vectors": "v.npy"}, "output": "x.index/y"}]
    with pytest.raises(JobsError, match=r"'x\.index/y', within an input or an output"):
        run_jobs(jobs)


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
