import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli_calls import MODEL, Run


def test_run(run: Run, model: Path) -> None:
    code, out, err = run("run", model)
    assert (code, err) == (0, [])
    assert out[0].startswith("Dispatch 'topk': 1 iterations, ")
    assert out[0].endswith(" ms median (CPU)")
    assert out[1:] == ["Resource 'values': 9, 7", f"Resource 'indices' written to '{model.parent / 'indices.npy'}'"]
    np.testing.assert_array_equal(np.load("indices.npy"), np.array([1, 3], np.uint32))


@pytest.mark.parametrize(
    ("flags", "timing"),
    [
        ([], (1, 1, None, 1, 0)),
        (["-i", "5", "-r", "3", "-t", "20", "-w", "0", "-v", "2"], (5, 3, 20, 0, 2)),
        (
            [
                "--dispatch_iterations=7",
                "--dispatch_repeat=2",
                "--milliseconds_to_run=0",
                "--warmup_samples=4",
                "--timing_verbosity=1",
            ],
            (7, 2, 0, 4, 1),
        ),
    ],
)
def test_timing_options(
    run: Run, model: Path, monkeypatch: pytest.MonkeyPatch, flags: list[str], timing: tuple[Any, ...]
) -> None:
    given = []
    monkeypatch.setattr("dmlcpu.models.runner.run_model", lambda model, *, timing: given.append(timing))
    code, _, _ = run("run", *flags, model)
    assert code == 0
    assert [(t.iterations, t.repeat, t.milliseconds, t.warmup_samples, t.verbosity) for t in given] == [timing]


def test_verbosity_from_the_command_line(run: Run, model: Path) -> None:
    _, out, _ = run("run", model, "-i", "3", "-v", "2")
    assert [line.split(":")[0].rstrip() for line in out] == [
        "Initialize 'topk'",
        "Dispatch 'topk'",
        "CPU Timings (Cold)",
        "CPU Timings (Hot)",
        "The timings of each iteration",
        "iteration 0",
        "iteration 1",
        "iteration 2",
        "Resource 'values'",
        "Resource 'indices' written to '" + str(model.parent / "indices.npy").split(":")[0] + "'",
    ]


def test_bad_model(run: Run, model: Path) -> None:
    broken = json.loads(json.dumps(MODEL))
    broken["commands"][0]["dispatchable"] = "top"
    broken["commands"][1]["resource"] = "y"
    model.write_text(json.dumps(broken))
    assert run("run", model) == (
        2,
        [],
        [
            f"dmlcpu: {model}: 2 errors",
            "  $.commands[0].dispatchable: 'top'; allowed: a dispatchable: topk",
            "  $.commands[1].resource: 'y'; allowed: a resource: x, values, indices",
        ],
    )
    assert not Path("indices.npy").exists()


def test_missing_model(run: Run, tmp_path: Path) -> None:
    assert run("run", tmp_path / "no.json") == (2, [], [f"dmlcpu: {tmp_path / 'no.json'}: No such file or directory"])


def test_nothing_runs_if_a_file_cannot_be_written(run: Run, model: Path) -> None:
    message = f"dmlcpu: {model}: $.commands[2].targetPath: {{!r}} cannot be written: {{}}"
    Path("indices.npy").mkdir()
    assert run("run", model) == (1, [], [message.format("indices.npy", "it is a folder")])
    text = model.read_text().replace('"indices.npy"', '"model.json/new/indices.npy"')
    model.write_text(text)
    reason = f"{model} is no folder"
    assert run("run", model) == (1, [], [message.format(str(Path("model.json/new/indices.npy")), reason)])


def test_failure_while_running(run: Run, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("dmlcpu.models.runner.write", write)
    code, out, err = run("run", model)
    assert code == 1
    assert out[-1] == "Resource 'values': 9, 7"
    (line,) = err
    assert line.startswith(f"dmlcpu: {model}: $.commands[2]: ")


@pytest.mark.parametrize("argv", [["--debug", "run"], ["run", "--debug"], ["run", "--verbose"]])
def test_debug_tells_of_the_kernels(run: Run, model: Path, argv: list[str]) -> None:
    from dmlcpu.operators.top_k.plan import plan

    plan.cache_clear()
    code, _, err = run(*argv, model)
    assert code == 0
    assert any(re.match(r"dmlcpu: top_k: \(.*\), k \d+ along axis \d: \w+ \(.+\), \d+ parts$", line) for line in err)
    _, _, err = run("run", model)
    assert err == []  # the next call is quiet again


def test_warnings_go_to_stderr(run: Run, model: Path) -> None:
    model.write_text(json.dumps(MODEL | {"comand": []}))
    code, _, err = run("run", model)
    assert code == 0
    assert err == ["dmlcpu: $.comand is unknown and ignored; known: $schema, resources, dispatchables, commands"]


def test_missing_extra(run: Run, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jsonschema", None)
    assert run("run", model) == (
        2,
        [],
        ["dmlcpu: the command line needs the package jsonschema: pip install '.[cli]' in a clone of dmlcpu"],
    )
