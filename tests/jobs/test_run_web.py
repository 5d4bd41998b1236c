"""Jobs on files of web servers that are busy or slow, and URLs with passwords."""

import json
import logging
import os
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from job_files import assert_best, best, records, run_after, save_inputs, save_jobs
from web_server import Server, serving

from dmlcpu.batch import JobsError, jobs_status, plan_jobs, run_jobs

pytest.importorskip("fsspec")
pytest.importorskip("aiohttp")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    save_inputs(tmp_path, 3)
    with serving(tmp_path) as running:
        yield running


def test_a_busy_server_is_asked_again_while_jobs_are_checked(tmp_path: Path, server: Server) -> None:
    jobs = [best("0000", inputs={"x": f"{server.url}/in/0000.npy"})]
    server.busy = [(503, ""), (429, "0"), (503, ""), (503, "")]
    assert run_jobs(jobs, directory=tmp_path, retries=10).done == 1
    assert_best(tmp_path, "0000")
    assert server.busy == []
    server.busy = [(503, "0")] * 4
    job = {"op": "top_k", "glob": f"{server.url}/in/*1.npy", "attrs": {"k": 3}, "output": "out/{stem}.npz"}
    assert run_jobs([job], directory=tmp_path, retries=4).done == 1
    server.busy = [(503, "0")] * 99
    with pytest.raises(JobsError, match="reading failed \\(503"):
        run_jobs(jobs, directory=tmp_path, retries=0)
    assert len(server.busy) > 90


def test_a_slow_server_keeps_no_other_job_waiting(tmp_path: Path, server: Server) -> None:
    server.slow = "/in/0001.npy"
    jobs = [best(name, inputs={"x": f"{server.url}/in/{name}.npy"}) for name in ("0001", "0002")]
    result = run_jobs(jobs, directory=tmp_path, timeout=5, keep_going=True)
    assert [failure.id for failure in result.failures] == ["0001"]
    url = f"{server.url}/in/0001.npy"
    assert result.failures[0].error.startswith(f"inputs.x: '{url}': took longer than 5 s; allowed: ")  # by the check
    assert result.done == 1
    assert_best(tmp_path, "0002")


def test_a_slow_server_keeps_no_other_job_waiting_that_is_done(tmp_path: Path, server: Server) -> None:
    """Whether a job is done is also found in time: its input has a minute's bytes to send."""
    jobs = [best(name, inputs={"x": f"{server.url}/in/{name}.npy"}) for name in ("0001", "0002")]
    options = {"directory": tmp_path, "manifest": tmp_path / "manifest", "content_hash": True, "keep_going": True}
    assert run_jobs(jobs, **options).done == 2
    server.slow = "/in/0001.npy"
    begun = time.monotonic()
    result = run_jobs(jobs, **options, timeout=2)
    assert time.monotonic() - begun < 30
    assert (result.done_before, [failure.id for failure in result.failures]) == (1, ["0001"])


@pytest.mark.parametrize("given", ["listed", "matched"])
def test_passwords_are_recorded_nowhere(
    tmp_path: Path, server: Server, caplog: pytest.LogCaptureFixture, given: str
) -> None:
    caplog.set_level(logging.DEBUG, "dmlcpu")
    url = server.url.replace("://", "://me:hunter2@") + "/in/{}.npy?Signature=hunter2"
    made = [{"op": "top_k", "inputs": {"x": url.format(name)}, "attrs": {"k": 3}} for name in ("0000", "0001", "9999")]
    for number, job in enumerate(made):
        job["output"] = f"out/000{number}.npz" if number < 2 else "out/none.npz"
    if given == "matched":
        glob = server.url.replace("://", "://me:hunter2@") + "/in/*.npy"
        made = [{"op": "top_k", "glob": glob, "attrs": {"k": 3}, "output": "out/{stem}.npz", "id": "{path}"}, made[2]]
    jobs = save_jobs(tmp_path, made)
    log = tmp_path / "log"
    plan = plan_jobs(jobs)
    result = run_jobs(jobs, keep_going=True, log=log)
    assert (result.done, result.failed) == ((2, 1) if given == "listed" else (3, 1))
    assert_best(tmp_path, "0001")
    (tmp_path / "in" / "0001.npy").write_bytes(b"broken")
    again = run_jobs(jobs, keep_going=True, log=log)
    assert (again.done_before, again.failed) == ((1, 2) if given == "listed" else (2, 2))
    with pytest.raises(JobsError) as caught:
        run_jobs(jobs)
    shown = [
        f"{plan}{plan.jobs}",
        f"{result}{again}",
        str(caught.value),
        f"{caught.value.faults}",
        str(jobs_status(jobs)),
    ]
    shown += [caplog.text, log.read_text(), Path(f"{jobs}.manifest.jsonl").read_text()]
    assert not [text for text in shown if "hunter2" in text]
    assert sum("***@127.0.0.1" in text for text in shown) >= 5


def test_passwords_of_files_that_change_after_the_check_are_recorded_nowhere(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "dmlcpu")
    url = server.url.replace("://", "://me:hunter2@") + "/in/{}.npy?Signature=hunter2"
    names = [f"{number:04}" for number in range(3)]
    jobs = save_jobs(tmp_path, [best(name, inputs={"x": url.format(name)}) for name in names])

    def change() -> None:
        os.utime(tmp_path / "in" / "0000.npy", ns=(5, 10**18))
        (tmp_path / "in" / "0001.npy").unlink()
        server.failing = "/in/0002.npy?Signature=hunter2"

    log = tmp_path / "log"
    result = run_after(monkeypatch, change, jobs, log=log, retries=0)
    assert result.failed == 3
    shown = [str(result.failures), str(jobs_status(jobs)), Path(f"{jobs}.manifest.jsonl").read_text(), log.read_text()]
    for text in (*shown, caplog.text):
        assert "***@127.0.0.1" in text
        assert "hunter2" not in text


def test_a_manifest_of_an_earlier_release_with_passwords(tmp_path: Path, server: Server) -> None:
    url = server.url.replace("://", "://me:hunter2@") + "/in/0000.npy"
    jobs = save_jobs(tmp_path, [best("0000", inputs={"x": url})])
    assert run_jobs(jobs).done == 1
    manifest = Path(f"{jobs}.manifest.jsonl")
    record = records(jobs)["0000"]
    assert "***@" in json.dumps(record)
    manifest.write_text(manifest.read_text().replace("***@", "me:hunter2@"))
    assert run_jobs(jobs).done_before == 1
    jobs.write_text(jobs.read_text().replace("me:hunter2", "me:other"))
    assert run_jobs(jobs).done_before == 1


def test_an_array_in_an_archive(tmp_path: Path) -> None:
    save_inputs(tmp_path, 1)
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        archive.write(tmp_path / "in" / "0000.npy", "x.npy")
    jobs = [best("0000", inputs={"x": f"zip://x.npy::{tmp_path}/x.zip"}), best("1", inputs={"x": "zip://x.npy::x.zip"})]
    assert run_jobs(jobs, directory=tmp_path).done == 2
    assert_best(tmp_path, "0000")
    np.testing.assert_array_equal(*(np.load(tmp_path / "out" / f"{name}.npz")["values"] for name in ("0000", "1")))
