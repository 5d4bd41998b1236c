import json
import os
import subprocess
import sys
from pathlib import Path

import commands
import pytest
from cli_calls import MODEL, Run, python, shell

import dmlcpu
from dmlcpu.cli.parser import spelled


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
        (["info", "--jso"], "dmlcpu info: error: unrecognized arguments: --jso (did you mean '--json'?)"),
        (["info", "extra"], "dmlcpu info: error: unrecognized arguments: extra"),
        (
            ["run", "m.json", "-v", "x"],
            "dmlcpu run: error: argument -v/--timing_verbosity: 'x'; allowed: 0, 1, 2",
        ),
        (
            ["batch", "j", "--timeout", "x"],
            "dmlcpu batch: error: argument --timeout: 'x'; allowed: more than 0 seconds",
        ),
        (
            ["search", "biuld"],
            "dmlcpu search: error: argument ACTION: 'biuld' (did you mean 'build'?); allowed: build, query",
        ),
        (
            ["search", "build", "v.npy", "-o", "i", "--k", "-1"],
            "dmlcpu search build: error: unrecognized arguments: --k=-1",
        ),
    ],
)
def test_usage(run: Run, argv: list[str], message: str) -> None:
    code, out, err = run(*argv)
    assert (code, out) == (2, [])
    assert err[-1] == message


@pytest.mark.parametrize(
    ("command", "hint"),
    [("bacth", " (did you mean 'batch'?)"), ("topk", " (did you mean 'top-k'?)"), ("nonsense", "")],
)
def test_an_unknown_command_names_similar_ones(run: Run, command: str, hint: str) -> None:
    code, out, err = run(command, "jobs.toml")
    assert (code, out) == (2, [])
    assert err[-1].startswith(
        f"dmlcpu: error: argument COMMAND: '{command}'{hint}; allowed: run, batch, status, top-k, "
    )


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        ("--debug top_k top_k --axis -1", "--debug top-k top_k --axis=-1"),
        ("top-k --fill-value -inf --axis -1.5e-3", "top-k --fill-value=-inf --axis=-1.5e-3"),
        ("top-k --fill-value -.5 -k -1 --axis=0 -1", "top-k --fill-value=-.5 -k -1 --axis=0 -1"),
        ("top-k -- -1 --axis -1", "top-k -- -1 --axis -1"),
        ("top-k --axis -i --quiet -x1", "top-k --axis -i --quiet -x1"),
    ],
)
def test_values_that_look_like_options(argv: str, expected: str) -> None:
    assert spelled(argv.split()) == expected.split()


def test_usage_is_one_line_that_names_what_is_required(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for argv, usage in (
        ([], "dmlcpu [options] COMMAND ..."),
        (["batch"], "dmlcpu batch [options] JOBS"),
        (["top-k"], "dmlcpu top-k [options] -o OUT -k FILE|VALUE IN [IN ...]"),
    ):
        _, _, err = run(*argv)
        assert err[0] == f"usage: {usage}"
        assert len(err) == 2


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


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [(KeyboardInterrupt, 130, "dmlcpu: interrupted"), (MemoryError, 1, "dmlcpu: not enough memory")],
)
def test_interrupted_command_prints_one_line_and_returns_a_code(
    run: Run, model: Path, monkeypatch: pytest.MonkeyPatch, error: type[BaseException], code: int, message: str
) -> None:
    def fail(*_args: object, **_options: object) -> None:
        raise error

    monkeypatch.setattr("dmlcpu.models.runner.run_model", fail)
    assert run("run", model) == (code, [], [message])


def test_as_a_process(model: Path) -> None:
    root = Path(dmlcpu.__file__).parents[1]
    env = {**os.environ, "PYTHONPATH": str(root)}
    done = python("-m", "dmlcpu", "run", model, cwd=model.parent, env=env)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[1] == "Resource 'values': 9, 7"
    model.write_text("{")
    refused = commands.run("run", model)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr == (
        f"dmlcpu: {model}: 1 error\n"
        "  $: unexpected end of input at line 1, column 2; allowed: JSON, with comments and trailing commas\n"
    )


@pytest.mark.parametrize("argv", [["--help"], ["run"], ["warmup", "--ops", "gemm"], ["warmup", "--types", "float8"]])
def test_help_and_bad_usage_import_no_numba(argv: list[str]) -> None:
    script = f"import sys; from dmlcpu.cli import main; main({argv!r}); sys.exit('numba' in sys.modules)"
    assert python("-c", script, cwd=Path(dmlcpu.__file__).parents[1]).returncode == 0


@pytest.mark.skipif(sys.platform != "linux", reason="of Linux")
@pytest.mark.usefixtures("model")
@pytest.mark.parametrize("argv", ["info", "run model.json", "--help"])
def test_output_on_a_full_disk(argv: str) -> None:
    done = commands.run(*argv.split(), stdout="/dev/full")
    assert (done.returncode, done.stderr) == (1, "dmlcpu: [Errno 28] No space left on device\n")


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX shells close files so")
@pytest.mark.parametrize("argv", [pytest.param("info", marks=pytest.mark.slow), "run model.json"])
def test_output_that_is_closed(model: Path, argv: str) -> None:
    done = shell(f'"$PYTHON" -m dmlcpu {argv} >&-', model)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(sys.platform == "win32", reason="a closed pipe is another error there")
def test_a_closed_pipe_ends_the_command_without_a_traceback(model: Path) -> None:
    """As in `dmlcpu run model.json | head -1`."""
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
