"""``dmlcpu status``."""

import json
from pathlib import Path

import numpy as np
import pytest
from cli_calls import Run


@pytest.fixture
def jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two jobs, one of which is invalid, that have been run."""
    monkeypatch.chdir(tmp_path)
    np.save("a.npy", np.arange(5, dtype=np.float32))
    made = [{"op": "top_k", "inputs": {"x": "a.npy"}, "attrs": {"k": k}, "output": f"{k}.npz"} for k in (2, 9)]
    Path("jobs.jsonl").write_text("".join(json.dumps(job) + "\n" for job in made))


@pytest.mark.usefixtures("jobs")
def test_status(run: Run) -> None:
    assert run("status", "jobs.jsonl") == (1, ["2 jobs: 2 not run"], [])
    run("batch", "jobs.jsonl", "--keep-going")
    code, out, err = run("status", "jobs.jsonl")
    assert (code, out[:2], out[3], err) == (
        1,
        ["2 jobs: 1 done, 1 failed", "slowest, with the compilation of kernels:"],
        "errors:",
        [],
    )
    code, out, _ = run("status", "jobs.jsonl", "--json")
    found = json.loads(out[0])
    (slowest,) = found.pop("slowest")
    (error,) = found.pop("errors")
    assert (code, slowest["id"]) == (1, "2.npz")
    counts = {"jobs": 2, "done": 1, "failed": 1, "stale": 0, "never_run": 0, "invalid": 0, "not_right": 0}
    assert found == {**counts, "stale_ids": []}
    assert error.pop("error").startswith("attrs.k: 9; allowed: 0 to 5")
    assert error == {"count": 1, "ids": ["9.npz"]}
    lines = Path("jobs.jsonl").read_text().splitlines()
    Path("jobs.jsonl").write_text(lines[0])
    assert run("status", "jobs.jsonl")[0] == 0


@pytest.mark.usefixtures("jobs")
@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["no.jsonl"], "dmlcpu: no.jsonl: No such file or directory"),
        (["-"], "dmlcpu: --manifest is missing; allowed: a file, as these jobs have none by default"),
        (
            ["jobs.jsonl", "--manifest", "a.npy"],
            "dmlcpu: a.npy is a file that is no manifest of dmlcpu; allowed: another file, by --manifest",
        ),
    ],
)
def test_usage(run: Run, argv: list[str], message: str) -> None:
    assert run("status", *argv) == (2, [], [message])
