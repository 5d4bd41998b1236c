"""The shipped examples write and print the reference's results."""

import json
import runpy
import shutil
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import commands
import numpy as np
import pytest

import dmlcpu
from dmlcpu import cli, reference

ROOT = Path(__file__).parents[1]
DIGITS = ROOT / "examples" / "digits"
K = 5


def load(name):
    return np.load(DIGITS / f"{name}.npy")


@pytest.fixture(scope="module")
def neighbours():
    """Similarities and stored images of the neighbors, by the reference."""
    similarities = reference.quantized_matmul(
        load("queries"), load("queries_scale"), None, load("stored").T, load("stored_scale"), None, 1 / 255, None
    )
    return reference.top_k(similarities, K)


@pytest.fixture(scope="module")
def used(neighbours):
    """Mark the stored images that are a neighbor of some query."""
    marks = np.zeros(1500, np.uint8)
    marks[neighbours.indices] = 1
    return marks


@pytest.fixture(scope="module")
def mlp():
    """The definitions of mlp.py."""
    return SimpleNamespace(**runpy.run_path(str(DIGITS / "mlp.py")))


@pytest.fixture(scope="module")
def network(mlp):
    """The float32 weights of mlp.py and its quantized layers."""
    weights = mlp.train(*mlp.load("stored"))
    return weights, mlp.quantize(weights, load("stored"))


@pytest.fixture
def run_script(monkeypatch, tmp_path, capsys):
    """Run a script in an empty folder; return its output."""

    def run(name, *arguments):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", [name, *arguments])
        runpy.run_path(str(DIGITS / name), run_name="__main__")
        return capsys.readouterr().out

    return run


@pytest.fixture
def run_knn(run_script):
    return partial(run_script, "knn.py")


def test_neighbours_json(neighbours, used, monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["run", str(DIGITS / "neighbours.json")]) == 0

    expected = {
        "neighbours_values.npy": neighbours.values,
        "neighbours_indices.npy": neighbours.indices.astype(np.uint32),
        "neighbours_used.npy": used,
    }
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(expected)
    for name, array in expected.items():
        np.testing.assert_array_equal(np.load(tmp_path / name), array, strict=True)

    least, queries = reference.top_k(neighbours.values[:, 0], 3, largest=False)
    printed = capsys.readouterr().out
    assert f"Resource 'odd_queries': {', '.join(map(str, queries))}\n" in printed
    assert f"Resource 'odd_values': {', '.join(map(str, least))}\n" in printed


def test_neighbours_json_marks_the_selected_indices():
    """The scatter reads the selection's buffer, flat: {1,1,297,5} and {1,1,1485,1} are the same bytes."""
    import json5

    model = json5.loads((DIGITS / "neighbours.json").read_text("utf-8"))
    bindings = {command["dispatchable"]: command["bindings"] for command in model["commands"][:4]}
    assert bindings["mark"]["IndicesTensor"] == bindings["select"]["OutputIndexTensor"] == "indices"
    assert model["dispatchables"]["compare"]["bindings"] == {"BTensor": "stored"}
    assert "BTensor" not in bindings["compare"]
    assert json.dumps(model)  # plain JSON but for comments and trailing commas


def test_batch(neighbours, tmp_path, monkeypatch):
    """The README's commands, each as a process; the shell's part is done here."""
    folder = shutil.copytree(DIGITS, tmp_path / "digits", ignore=shutil.ignore_patterns("split", "*.manifest.jsonl"))
    readme = (DIGITS / "README.md").read_text("utf-8")
    lines = readme.partition("## Many files")[2].split("```\n")[1].splitlines()
    assert [line.partition(" ")[0] for line in lines] == ["python", "dmlcpu", "dmlcpu"]
    monkeypatch.chdir(folder)

    def run(command):
        program, *arguments = [
            text
            for word in command.split()
            for text in (sorted(map(str, folder.glob(word))) if "*" in word else [word])
        ]
        script = "import runpy, sys; sys.argv.pop(0); runpy.run_path(sys.argv[0], run_name='__main__')"
        ran = commands.run(*arguments, code=script if program == "python" else commands.COMMAND)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout + ran.stderr

    split, compared, selected = map(run, lines)
    assert split == "297 queries in 30 files, 1500 stored images in one\n"
    for printed in (compared, selected):  # lines of progress come first if it took half a minute
        assert printed.splitlines()[-1].startswith("dmlcpu: 30 done, in ")

    parts = [np.load(path) for path in sorted((folder / "split" / "neighbours").iterdir())]
    assert [len(part["indices"]) for part in parts] == [10] * 29 + [7]
    for name, expected in zip(("values", "indices"), neighbours, strict=True):
        np.testing.assert_array_equal(np.concatenate([part[name] for part in parts]), expected, strict=True)
    assert run(lines[1]).startswith("dmlcpu: resuming: 30 of 30 done, 0 to do\n")


def test_knn(neighbours, used, run_knn, tmp_path):
    pytest.importorskip("matplotlib")
    lines = run_knn().splitlines()

    digits = load("stored_labels")[neighbours.indices]
    votes = np.stack([np.bincount(row, minlength=10) for row in digits])
    right = int((votes.argmax(axis=1) == load("queries_labels")).sum())
    assert right == 285  # as the docstring promises
    assert lines[0] == "297 queries, 1500 stored images of 64 pixels, 5 neighbors"
    assert [line.split()[0] for line in lines[1:5]] == ["pack_b", "quantized_matmul", "top_k", "scatter_nd"]
    assert lines[6:] == [
        f"accuracy: {right / 297:.1%} ({right} of 297)",
        f"{used.sum()} of 1500 stored images are a neighbour of some query",
        "picture: knn.png",
    ]
    assert (tmp_path / "knn.png").read_bytes().startswith(b"\x89PNG")


def test_knn_in_float32_is_as_its_docstring_says():
    queries = load("queries") * load("queries_scale")[:, None]
    stored = load("stored") * load("stored_scale")[:, None]
    digits = load("stored_labels")[reference.top_k(queries @ stored.T, K).indices]
    votes = np.stack([np.bincount(row, minlength=10) for row in digits])
    assert (votes.argmax(axis=1) == load("queries_labels")).sum() == 283


def test_knn_saves_the_picture_under_a_given_name(run_knn, tmp_path, monkeypatch):
    figure = pytest.importorskip("matplotlib.figure")
    monkeypatch.setattr(figure.Figure, "savefig", lambda _, path, **more: Path(path).touch())  # test_knn draws one
    assert run_knn("--picture", "other.png").endswith("\npicture: other.png\n")
    assert [path.name for path in tmp_path.iterdir()] == ["other.png"]


def test_knn_without_picture(run_knn, tmp_path):
    assert "picture" not in run_knn("--no-picture")
    assert not list(tmp_path.iterdir())


def test_knn_without_matplotlib(run_knn, tmp_path, monkeypatch):
    for name in [name for name in sys.modules if name.split(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert run_knn().endswith("\nno picture: matplotlib is not installed\n")
    assert not list(tmp_path.iterdir())


def scores_by_the_reference(layers, images):
    for layer in layers:
        images = reference.quantized_matmul(images, *layer)
    return images


def right_answers(scores):
    return int((reference.top_k(scores, 1).indices[:, 0] == load("queries_labels")).sum())


def test_mlp_equals_the_reference(mlp, network):
    weights, layers = network
    packed = [layer._replace(b=dmlcpu.pack_b(layer.b)) for layer in layers]
    expected = scores_by_the_reference(layers, load("queries"))
    for way in (layers, packed):
        np.testing.assert_array_equal(mlp.predict(way, load("queries")), expected, strict=True)

    in_float32 = right_answers(mlp.scores_in_float32(weights, load("queries")))
    assert in_float32 >= 0.91 * 297  # 276 where it was written; the last bits of training depend on NumPy's BLAS
    assert abs(right_answers(expected) - in_float32) <= 0.015 * 297


def test_mlp_quantizes_as_its_comments_say(mlp, network):
    weights, layers = network
    for w, layer in zip(weights, layers, strict=True):
        assert (np.abs(layer.b).max(axis=0) == 64).all()
        assert (np.abs(layer.b * layer.b_scale - w) <= layer.b_scale * 0.501).all()
    assert layers[0].y_zero_point == 0
    assert layers[0][-2:] == layers[1][:2]
    scores = mlp.scores_in_float32(weights, load("stored"))
    quantized = scores_by_the_reference(layers, load("stored"))
    assert np.ptp(quantized) >= 245  # nearly all of 0 to 255
    meant = (quantized - np.float32(layers[1].y_zero_point)) * layers[1].y_scale
    assert np.abs(meant - scores).mean() < 0.5 * layers[1].y_scale


def test_mlp_in_onnxruntime(mlp, network, run_script):
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    _, layers = network
    scores = mlp.onnxruntime_session(layers, threads=1)(load("queries"))
    np.testing.assert_array_equal(scores, scores_by_the_reference(layers, load("queries")), strict=True)

    lines = run_script("mlp.py").splitlines()
    assert [line.split()[0] for line in lines[4:7]] == ["float32", "dmlcpu", "onnxruntime"]
    assert lines[-1] == "17970 scores equal bit for bit: yes"


def test_mlp_without_onnxruntime(network, run_script, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    trained, nothing, versions, _, head, *rows, times = run_script("mlp.py", "--threads", "2").splitlines()

    right = right_answers(scores_by_the_reference(network[1], load("queries")))
    assert trained.startswith("trained on 1500 images in ")
    assert nothing == "no comparison: onnxruntime is not installed"
    assert versions.endswith(f"numpy {np.__version__}, 2 threads")
    assert head.split() == ["accuracy", "1", "image", "297", "images"]
    assert [row.split()[0] for row in rows] == ["float32", "dmlcpu"]
    assert rows[1].split()[1:3] == [f"{right / 297:.1%}", f"({right})"]
    assert rows[1].count(" us") == 2
    assert times.startswith("(times of the two products: ")


def test_make_data_makes_the_shipped_files():
    pytest.importorskip("sklearn")
    made = runpy.run_path(str(DIGITS / "make_data.py"))["make"]()
    assert sorted(f"{name}.npy" for name in made) == sorted(path.name for path in DIGITS.glob("*.npy"))
    for name, array in made.items():
        np.testing.assert_array_equal(load(name), array, strict=True)


def test_data_are_unit_images():
    """Every image's length is 1 but for the rounding of its 64 pixels, and the files stay small."""
    for name in ("stored", "queries"):
        images = load(name) * load(f"{name}_scale")[:, None].astype(np.float64)
        np.testing.assert_allclose(np.linalg.norm(images, axis=1), 1, atol=0.004)
        assert (load(name).max(axis=1) == 255).all()
    assert sum(path.stat().st_size for path in DIGITS.glob("*.npy")) < 200_000
