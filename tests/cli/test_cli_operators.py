"""The operators' commands, made from their functions."""

import inspect
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli_calls import Run, environment, python
from samples import as_tuple

import dmlcpu
from dmlcpu.files import open_source
from dmlcpu.operators import OPERATORS, Operator


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    generator = np.random.default_rng(0)
    (tmp_path / "in").mkdir()
    for name in "abc":
        np.save(tmp_path / "in" / f"{name}.npy", generator.random((4, 9), np.float32))
    np.save(tmp_path / "k.npy", np.array([1, 2, 3, 0]))
    return tmp_path


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("spelled", ["y.zarr", "y.zarr/"])
def test_a_zarr_result_takes_the_place_of_an_earlier_one(run: Run, folder: Path, spelled: str) -> None:
    """The folder of the first result is no folder for the second."""
    pytest.importorskip("zarr")
    for name in "ab":
        assert run("top-k", f"in/{name}.npy", "-o", f"values={spelled}", "--k", 2, "-q") == (0, [], [])
        with open_source("y.zarr") as source:
            expected = dmlcpu.top_k(np.load(folder / "in" / f"{name}.npy"), 2).values
            np.testing.assert_array_equal(source.read(), expected)
    assert sorted(path.name for path in (folder / "y.zarr").iterdir()) == ["c", "zarr.json"]


@pytest.mark.parametrize("name", OPERATORS)
def test_help(run: Run, name: str) -> None:
    spelled = name.replace("_", "-")
    code, out, err = run(spelled, "--help")
    text = "\n".join(out)
    assert (code, err) == (0, [])
    assert out[0].startswith(f"usage: dmlcpu {spelled} ")
    parameters = inspect.signature(OPERATORS[name].function).parameters
    first, *others = [each for each in parameters if each not in ("out", "others")]
    for parameter in others:
        shown = re.search(rf"^  (?:-\w \S+, )?--{parameter.replace('_', '-')} (\S+)\s+([^.-]+)", text, re.MULTILINE)
        assert shown, parameter
        assert (shown[1] == "FILE|VALUE") == ("array_like" in shown[2]), parameter
    assert f"files of {first}: " in text
    assert "--out " not in text.replace("--output", "")
    assert "``" not in text
    assert not re.search("pack", text, re.IGNORECASE)  # what no file can be
    assert all(len(line) <= 120 for line in out)


@pytest.mark.usefixtures("folder")
def test_without_docstrings_only_descriptions_are_missing(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python removes docstrings if it is run with -OO."""
    monkeypatch.setenv("COLUMNS", "80")
    helps = [[name.replace("_", "-"), "--help"] for name in OPERATORS]
    calls = [*helps, ["top-k", "in/a.npy", "-o", "y.npz", "--k", "k.npy", "-q"]]
    code = f"from dmlcpu.cli import main; raise SystemExit(max([main(argv) for argv in {calls}]))"
    # Kernels would be compiled for this test alone: their cache is another one without docstrings.
    done = python("-OO", "-W", "error", "-c", code, env=environment(NUMBA_DISABLE_JIT="1"))
    assert (done.returncode, done.stderr) == (0, "")
    usage = re.compile(r"^usage: (?:.+\n)+", re.MULTILINE)
    assert usage.findall(done.stdout) == [usage.findall("\n".join(run(*argv)[1]))[0] for argv in helps]
    with np.load("y.npz") as found:
        np.testing.assert_array_equal(found["values"], dmlcpu.top_k(np.load("in/a.npy"), np.load("k.npy")).values)


@pytest.mark.usefixtures("folder")
def test_files_to_a_folder(run: Run) -> None:
    code, out, err = run("top-k", "in/a.npy", "in/b.npy", "-o", "out/", "--k", 2, "--mode", "smallest", "--axis=0")
    assert (code, out, err[-1][:15]) == (0, [], "dmlcpu: 2 done,")
    for name in "ab":
        expected = dmlcpu.top_k(np.load(f"in/{name}.npy"), 2, mode="smallest", axis=0)
        with np.load(f"out/{name}.npz") as found:
            np.testing.assert_array_equal(found["values"], expected.values, strict=True)
            np.testing.assert_array_equal(found["indices"], expected.indices, strict=True)
    Path("there").mkdir()
    assert run("top-k", "in/a.npy", "-o", "there", "--k", 2, "-q") == (0, [], [])
    assert Path("there/a.npz").exists()
    assert sorted(path.name for path in Path().iterdir()) == ["in", "k.npy", "out", "there"]  # no manifest


@pytest.mark.usefixtures("folder")
def test_faults_that_show_when_a_job_runs_name_options(run: Run) -> None:
    code, _, err = run("top-k", "in/a.npy", "-o", "a.npz", "--k", "99", "--check-as-you-go")
    assert (code, err[0]) == (1, "dmlcpu: failed: top-k (a.npz): --k: 99; allowed: 0 to 9 (the elements along axis 1)")


@pytest.mark.usefixtures("folder")
def test_inputs_that_would_have_the_same_output_are_named(run: Run) -> None:
    Path("more").mkdir()
    np.save("more/a.npy", np.zeros(3))
    code, _, err = run("top-k", "in/a.npy", "in/b.npy", "more/a.npy", "-o", "out/", "--k", 2)
    reason = (
        "-o: 'out/a.npz' for 'in/a.npy' and for 'more/a.npy'; allowed: a text with {path} or {number}, which differ"
    )
    assert (code, err) == (2, ["dmlcpu: top-k: 1 error", f"  top-k (out/a.npz): {reason}"])
    assert run("top-k", "in/a.npy", "more/a.npy", "-o", "{number}/{stem}.npz", "--k", 2, "-q")[0] == 0
    assert run("top-k", "in/a.npy", "more/a.npy", "-o", "out/{path}.npz", "--k", 2, "-q")[0] == 0


@pytest.mark.usefixtures("folder")
def test_a_file_may_be_called_as_an_array_in_a_file(run: Run) -> None:
    for name, source in {"a::b.npy": "in/a.npy", "k::.npy": "k.npy"}.items():
        Path(name).write_bytes(Path(source).read_bytes())
    assert run("top-k", "a::b.npy", "-o", "{name}.npz", "--k", "k::.npy", "-q") == (0, [], [])
    with np.load("a::b.npy.npz") as found:
        np.testing.assert_array_equal(found["values"], dmlcpu.top_k(np.load("in/a.npy"), np.load("k.npy")).values)


@pytest.mark.usefixtures("folder")
def test_results_and_arguments_in_files(run: Run) -> None:
    argv = ["top-k", "in/a.npy", "-o", "values=v/{stem}.npy", "-o", "indices=i/{number}.npy", "--k", "k.npy", "-q"]
    assert run(*argv, "--fill-value", "-1") == (0, [], [])
    expected = dmlcpu.top_k(np.load("in/a.npy"), np.load("k.npy"), fill_value=-1)
    np.testing.assert_array_equal(np.load("v/a.npy"), expected.values)
    np.testing.assert_array_equal(np.load("i/0.npy"), expected.indices)
    assert run("top-k", "in/a.npy", "-o", "values=w/", "--k", "[1, 2, 3, 0]", "--fill-value=NaN", "-q") == (0, [], [])
    assert np.isnan(np.load("w/a.npy")[3]).all()


@pytest.mark.usefixtures("folder")
def test_types_that_files_have_no_name_for(run: Run) -> None:
    argv = ["quantize-linear", "in/a.npy", "--scale", "0.25", "--out-dtype", "int4", "-q"]
    assert run(*argv, "-o", "y.npy") == (0, [], [])
    expected = dmlcpu.quantize_linear(np.load("in/a.npy"), 0.25, out_dtype="int4")
    with open_source("y.npy", dtype="int4") as source:
        np.testing.assert_array_equal(source.read(), expected)


def as_word(name: str, value: Any) -> str:
    """Return an argument's value as a word of a command: an array is saved to a file."""
    if isinstance(value, np.ndarray):
        np.save(f"{name}.npy", value)
        return f"{name}.npy"
    return value if isinstance(value, str) else json.dumps(value)


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("operator", OPERATORS.values(), ids=list(OPERATORS))
def test_examples_on_files(run: Run, operator: Operator) -> None:
    """Arrays are files, other arguments options."""
    for arguments, _ in operator.examples(operator.typical):
        if any(isinstance(value, dmlcpu.PackedMatrix) for value in arguments.values()):
            continue
        (_, file), *others = [(name, as_word(name, value)) for name, value in arguments.items()]
        options = [word for name, value in others for word in (f"--{name.replace('_', '-')}", value)]
        assert run(operator.name.replace("_", "-"), file, *options, "-o", "out.npz", "-q") == (0, [], [])
        with np.load("out.npz") as found:
            for name, result in zip(operator.results, as_tuple(operator.function(**arguments)), strict=True):
                np.testing.assert_array_equal(found[name], result, strict=True)


@pytest.mark.usefixtures("folder")
def test_again_with_a_manifest(run: Run) -> None:
    argv = ["top-k", "in/a.npy", "in/b.npy", "-o", "out/", "--k", "2", "--manifest", "m", "--json", "-q"]
    assert json.loads(run(*argv)[1][0])["done"] == 2
    assert json.loads(run(*argv)[1][0])["done_before"] == 2
    assert json.loads(run(argv[0], "in/c.npy", *argv[1:])[1][0])["done"] == 1


OUTPUTS = "allowed: a file or a folder, or RESULT=FILE for some of values, indices"


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["in/a.npy", "-o", "", "--k", "2"], f"dmlcpu: top-k: -o is ; {OUTPUTS}"),
        (["in/a.npy", "-o", "values=", "--k", "2"], f"dmlcpu: top-k: -o is values=; {OUTPUTS}"),
        (["in/a.npy", "--k", "2"], "dmlcpu top-k: error: the following arguments are required: -o/--output"),
        (["in/a.npy", "-o", "out/"], "dmlcpu top-k: error: the following arguments are required: -k/--k"),
        (
            ["in/a.npy", "-o", "out/", "--k", "2", "--kk", "2"],
            "dmlcpu top-k: error: unrecognized arguments: --kk 2 (did you mean '--k'?)",
        ),
        (["in/a.npy", "-o", "out/", "-o", "b/", "--k", "2"], f"dmlcpu: top-k: -o is out/ b/; {OUTPUTS}"),
        (
            ["in/a.npy", "-o", "out/", "--k", "two"],
            "dmlcpu top-k: error: argument -k/--k: 'two'; allowed: a number, a list, or a file "
            "(.npy, .npz, .safetensors, .zarr, .pb, .h5, .hdf5)",
        ),
        (
            ["in/a.npy", "-o", "out/", "--k", "10"],
            "  top-k (out/a.npz): --k: 10; allowed: 0 to 9 (the elements along axis 1)",
        ),
        (
            ["in/a.npy", "-o", "out/", "--k", "2", "--axis", "last"],
            "  top-k (out/a.npz): --axis: 'last'; allowed: an integer",
        ),
        (
            ["in/no.npy", "-o", "out/", "--k", "2"],
            "  top-k (out/no.npz): IN: 'in/no.npy', which does not exist; allowed: a file",
        ),
        (
            ["in/a.npy", "-o", "values=in/a.npy", "--k", "2"],
            "  top-k (in/a.npy): -o: 'in/a.npy', an input of this command; allowed: a file that no job reads",
        ),
        (["in/a.npy", "-o", "valeus=a.npy", "--k", "2"], f"dmlcpu: top-k: -o is valeus=a.npy; {OUTPUTS}"),
        (
            ["in/a.npy", "in/b.npy", "-o", "one", "--k", "2"],
            "dmlcpu: top-k: -o is one for 2 inputs; allowed: a folder: one/",
        ),
        (
            ["in/a.npy", "in/b.npy", "-o", "one.npz", "--k", "2"],
            "dmlcpu: top-k: -o is one.npz for 2 inputs; allowed: a folder: one/",
        ),
        (
            ["in/a.npy", "in/b.npy", "in/c.npy", "-o", "values=v/{stem}.npy", "-o", "indices=i.npy", "--k", "2"],
            "dmlcpu: top-k: -o is indices=i.npy for 3 inputs; allowed: a folder: indices=i/",
        ),
    ],
)
def test_usage(run: Run, folder: Path, argv: list[str], message: str) -> None:
    code, out, err = run("top-k", *argv)
    assert (code, out, err[-1]) == (2, [], message)
    assert sorted(path.name for path in folder.iterdir()) == ["in", "k.npy"]


@pytest.mark.usefixtures("folder")
def test_results_do_not_go_to_standard_output(run: Run) -> None:
    code, _, err = run("top-k", "in/a.npy", "--k", 2, "-o", "-")
    assert code == 2
    assert err[-1].startswith("  top-k (-): -o: '-'; allowed: a file with one of the suffixes .npz, .safe")


@pytest.mark.usefixtures("folder")
def test_commands_and_values_as_python_spells_them(run: Run) -> None:
    assert run("top_k", "in/a.npy", "-o", "y.npz", "-k", 2, "--sorted", "False", "--axis", "None", "-q")[0] == 2
    assert run("--debug", "top_k", "in/a.npy", "-o", "y.npz", "-k", 2, "--sorted", "False", "-q")[0] == 0
    with np.load("y.npz") as found:
        np.testing.assert_array_equal(np.sort(found["values"]), np.sort(dmlcpu.top_k(np.load("in/a.npy"), 2).values))


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(("spelled", "value"), [("-inf", -np.inf), ("Infinity", np.inf), ("-1e3", -1e3)])
def test_fill_values_that_begin_with_a_hyphen(run: Run, spelled: str, value: float) -> None:
    assert run("top-k", "in/a.npy", "-o", "y.npz", "-k", "k.npy", "--fill-value", spelled, "-q") == (0, [], [])
    with np.load("y.npz") as found:
        assert found["values"][3, 0] == value


@pytest.mark.usefixtures("folder")
def test_the_type_of_bfloat16_is_named(run: Run, folder: Path) -> None:
    import ml_dtypes

    x = np.array([[1, 3, 2]], ml_dtypes.bfloat16)
    np.savez(folder / "x.npz", a=x, b=x)
    np.save(folder / "x.npy", x)
    code, _, err = run("top-k", "x.npy", "-o", "y.npz", "-k", 1)
    assert code == 2
    assert err[-1].endswith("float32, float64; for bfloat16: --dtype bfloat16")
    for source in ("x.npy", "x.npz::b"):
        assert run("top-k", source, "-o", "y.npz", "-k", 1, "--dtype", "bfloat16", "-q") == (0, [], [])
        with np.load("y.npz") as found:
            assert found["values"].view(ml_dtypes.bfloat16) == 3
    code, _, err = run("top-k", "x.npy", "-o", "y.npz", "-k", 1, "--dtype", "float32")
    assert code == 2
    assert "elements of |V2, seen as float32; allowed: a type of 2 bytes" in err[-1]
