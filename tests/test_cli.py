import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dmlcpu
from dmlcpu import cli
from dmlcpu.operators import OPERATORS
from dmlcpu.runtime import isa, threads

MODEL: dict[str, Any] = {
    "resources": {
        "x": {"initialValuesDataType": "FLOAT32", "initialValues": [1, 9, 5, 7]},
        "values": {"initialValuesDataType": "FLOAT32", "initialValues": {"valueCount": 2, "value": 0}},
        "indices": {"initialValuesDataType": "UINT32", "initialValues": {"valueCount": 2, "value": 0}},
    },
    "dispatchables": {
        "topk": {
            "type": "TOP_K",
            "desc": {
                "InputTensor": {"DataType": "FLOAT32", "Sizes": [4]},
                "OutputValueTensor": {"DataType": "FLOAT32", "Sizes": [2]},
                "OutputIndexTensor": {"DataType": "UINT32", "Sizes": [2]},
                "Axis": 0,
                "K": 2,
            },
        }
    },
    "commands": [
        {
            "type": "dispatch",
            "dispatchable": "topk",
            "bindings": {"InputTensor": "x", "OutputValueTensor": "values", "OutputIndexTensor": "indices"},
        },
        {"type": "print", "resource": "values"},
        {"type": "writeFile", "resource": "indices", "targetPath": "indices.npy"},
    ],
}

Run = Callable[..., tuple[int, list[str], list[str]]]


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "model.json"
    path.write_text("// top-k of four\n" + json.dumps(MODEL))
    return path


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Call the command line; return the exit code, and the lines on stdout and stderr."""

    def call(*argv: object) -> tuple[int, list[str], list[str]]:
        code = cli.main(list(map(str, argv)))
        captured = capsys.readouterr()
        return code, captured.out.splitlines(), captured.err.splitlines()

    return call


@pytest.fixture
def fresh_environment() -> Iterator[None]:
    """Let the runtime read its environment variables again, before and after."""
    before = threads._budgets

    def forget() -> None:
        isa.allowed.cache_clear()
        threads._budgets = None

    forget()
    yield
    isa.allowed.cache_clear()
    threads._budgets = before


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
    monkeypatch.setattr("dmlcpu.batch.models.runner.run_model", lambda model, *, timing: given.append(timing))
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
            f"dmlcpu: {model}: 2 faults",
            "  $.commands[0].dispatchable: 'top'; allowed: a dispatchable: topk",
            "  $.commands[1].resource: 'y'; allowed: a resource: x, values, indices",
        ],
    )
    assert not Path("indices.npy").exists()


def test_missing_model(run: Run, tmp_path: Path) -> None:
    assert run("run", tmp_path / "no.json") == (2, [], [f"dmlcpu: {tmp_path / 'no.json'}: No such file or directory"])


def test_failure_while_running(run: Run, model: Path) -> None:
    Path("indices.npy").mkdir()
    code, out, err = run("run", model)
    assert code == 1
    assert out[-1] == "Resource 'values': 9, 7"
    (line,) = err
    assert line.startswith(f"dmlcpu: {model}: $.commands[2]: ")


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ([], "dmlcpu: error: the following arguments are required: COMMAND"),
        (["run"], "dmlcpu run: error: the following arguments are required: MODEL.json"),
        (
            ["run", "m.json", "-i", "0"],
            "dmlcpu run: error: argument -i/--dispatch_iterations: '0'; allowed: an integer of at least 1",
        ),
        (
            ["run", "m.json", "-w", "many"],
            "dmlcpu run: error: argument -w/--warmup_samples: 'many'; allowed: an integer of at least 0",
        ),
        (
            ["run", "m.json", "-t", "-1"],
            "dmlcpu run: error: argument -t/--milliseconds_to_run: '-1'; allowed: an integer of at least 0",
        ),
        (["info", "--jso"], "dmlcpu: error: unrecognized arguments: --jso"),
    ],
)
def test_usage(run: Run, argv: list[str], message: str) -> None:
    code, out, err = run(*argv)
    assert (code, out) == (2, [])
    assert err[-1] == message


def test_names_that_warmup_does_not_know(run: Run) -> None:
    code, _, err = run("warmup", "--ops", "top_k", "gemm")
    assert code == 2
    for part in ("argument --ops: invalid choice: 'gemm'", *OPERATORS):
        assert part in err[-1]
    code, _, err = run("warmup", "--types", "float8")
    assert code == 2
    for part in ("argument --types: invalid choice: 'float8'", *OPERATORS["top_k"].types):
        assert part in err[-1]


def test_types_that_the_operator_does_not_have(run: Run) -> None:
    assert run("warmup", "--ops", "quantized_matmul", "--types", "float32") == (
        2,
        [],
        ["dmlcpu: none of these operators has these types; allowed: quantized_matmul: int8, uint8"],
    )


def test_warmup(run: Run) -> None:
    code, out, err = run("warmup", "--ops", "top_k", "--types", "uint32")
    assert (code, err) == (0, [])  # no bar: stderr is no terminal
    (line,) = out
    assert line.startswith("compiled ")


def test_info(run: Run) -> None:
    code, out, err = run("info")
    assert (code, err) == (0, [])
    assert out[0] == "versions"
    assert "kernels" in out


def test_info_json(run: Run) -> None:
    code, out, err = run("info", "--json")
    assert (code, err) == (0, [])
    assert json.loads("\n".join(out))["versions"]["dmlcpu"] == dmlcpu.__version__


@pytest.mark.parametrize("command", [["info"], ["warmup"], ["run"]])
@pytest.mark.parametrize(
    ("variable", "message"),
    [
        (
            "DMLCPU_ISA",
            "dmlcpu: DMLCPU_ISA is 'nonsense'; allowed: generic, avx2, avxvnni, avx512vnni, amx, dotprod, i8mm",
        ),
        ("DMLCPU_NUM_THREADS", "dmlcpu: DMLCPU_NUM_THREADS is 'nonsense'; allowed: an integer of at least 1"),
    ],
)
@pytest.mark.usefixtures("fresh_environment")
def test_bad_environment(
    run: Run, model: Path, monkeypatch: pytest.MonkeyPatch, command: list[str], variable: str, message: str
) -> None:
    monkeypatch.setenv(variable, "nonsense")
    assert run(*command, *([model] if command == ["run"] else [])) == (2, [], [message])


def test_version_and_help(run: Run) -> None:
    assert run("--version") == (0, [f"dmlcpu {dmlcpu.__version__}"], [])
    for argv in (["-h"], ["run", "-h"], ["info", "-h"], ["warmup", "-h"]):
        code, out, err = run(*argv)
        assert (code, err) == (0, [])
        assert out[0].startswith("usage: dmlcpu")


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
        ["dmlcpu: the command line needs the package jsonschema: pip install 'dmlcpu[cli]'"],
    )


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [(KeyboardInterrupt, 130, "dmlcpu: interrupted"), (MemoryError, 1, "dmlcpu: not enough memory")],
)
def test_interruption(
    run: Run, model: Path, monkeypatch: pytest.MonkeyPatch, error: type[BaseException], code: int, message: str
) -> None:
    def fail(*_args: object, **_options: object) -> None:
        raise error

    monkeypatch.setattr("dmlcpu.batch.models.runner.run_model", fail)
    assert run("run", model) == (code, [], [message])


def python(*argv: object, **options: Any) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, *map(str, argv)], capture_output=True, text=True, timeout=300, **options)


def test_as_a_process(model: Path) -> None:
    root = Path(dmlcpu.__file__).parents[1]
    env = {**os.environ, "PYTHONPATH": str(root)}
    done = python("-m", "dmlcpu", "run", model, cwd=model.parent, env=env)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[1] == "Resource 'values': 9, 7"
    model.write_text("{")
    refused = python("-m", "dmlcpu", "run", model, cwd=model.parent, env=env)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr == (
        f"dmlcpu: {model}: 1 fault\n"
        "  $: unexpected end of input at line 1, column 2; allowed: JSON, with comments and trailing commas\n"
    )


@pytest.mark.parametrize("argv", [["--help"], ["run"], ["warmup", "--ops", "gemm"], ["warmup", "--types", "float8"]])
def test_help_and_bad_usage_import_no_numba(argv: list[str]) -> None:
    script = f"import sys; from dmlcpu.cli import main; main({argv!r}); sys.exit('numba' in sys.modules)"
    assert python("-c", script, cwd=Path(dmlcpu.__file__).parents[1]).returncode == 0


def shell(command: str, model: Path) -> "subprocess.CompletedProcess[str]":
    env = {**os.environ, "PYTHONPATH": str(Path(dmlcpu.__file__).parents[1]), "PYTHON": sys.executable}
    env.pop("PYTHONUNBUFFERED", None)  # it would change which write fails
    return subprocess.run(command, shell=True, cwd=model.parent, env=env, capture_output=True, text=True, timeout=300)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
@pytest.mark.parametrize("argv", ["info", "run model.json", "--help"])
def test_output_on_a_full_disk(model: Path, argv: str) -> None:
    done = shell(f'"$PYTHON" -m dmlcpu {argv} >/dev/full', model)
    assert (done.returncode, done.stderr) == (1, "dmlcpu: [Errno 28] No space left on device\n")


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX shells close files so")
@pytest.mark.parametrize("argv", ["info", "run model.json"])
def test_output_that_is_closed(model: Path, argv: str) -> None:
    done = shell(f'"$PYTHON" -m dmlcpu {argv} >&-', model)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(sys.platform == "win32", reason="a closed pipe is another error there")
def test_output_that_nobody_reads(model: Path) -> None:
    """Like `dmlcpu run model.json | head -1`: no traceback."""
    many = json.loads(json.dumps(MODEL))
    many["resources"]["x"]["initialValues"] += [0] * 100_000
    many["commands"][1:] = [{"type": "print", "resource": "x"}] * 3
    model.write_text(json.dumps(many))
    env = {**os.environ, "PYTHONPATH": str(Path(dmlcpu.__file__).parents[1])}
    with subprocess.Popen(
        [sys.executable, "-m", "dmlcpu", "run", str(model)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(timeout=300) == 1
