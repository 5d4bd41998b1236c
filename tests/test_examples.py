"""The shipped examples: what they write and print is what the reference says."""

import json
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest

from dmlcpu import cli, reference

DIGITS = Path(__file__).parents[1] / "examples" / "digits"
K = 5


def load(name):
    return np.load(DIGITS / f"{name}.npy")


@pytest.fixture(scope="module")
def neighbours():
    """Similarities and stored images of the neighbours, by the reference."""
    similarities = reference.quantized_matmul(
        load("queries"), load("queries_scale"), None, load("stored").T, load("stored_scale"), None, 1 / 255, None
    )
    return reference.top_k(similarities, K)


@pytest.fixture(scope="module")
def used(neighbours):
    """Mark the stored images that are anybody's neighbour."""
    marks = np.zeros(1500, np.uint8)
    marks[neighbours.indices] = 1
    return marks


@pytest.fixture
def run_knn(monkeypatch, tmp_path, capsys):
    """Run knn.py in an empty folder; return what it prints."""

    def run(*arguments):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", ["knn.py", *arguments])
        runpy.run_path(str(DIGITS / "knn.py"), run_name="__main__")
        return capsys.readouterr().out

    return run


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


def test_neighbours_json_marks_the_indices_that_were_selected():
    """The scatter reads the selection's buffer, flat: {1,1,297,5} and {1,1,1485,1} are the same bytes."""
    import json5

    model = json5.loads((DIGITS / "neighbours.json").read_text("utf-8"))
    bindings = {command["dispatchable"]: command["bindings"] for command in model["commands"][:4]}
    assert bindings["mark"]["IndicesTensor"] == bindings["select"]["OutputIndexTensor"] == "indices"
    assert model["dispatchables"]["compare"]["bindings"] == {"BTensor": "stored"}
    assert "BTensor" not in bindings["compare"]
    assert json.dumps(model)  # plain JSON but for comments and trailing commas


def test_knn(neighbours, used, run_knn, tmp_path):
    pytest.importorskip("matplotlib")
    lines = run_knn().splitlines()

    digits = load("stored_labels")[neighbours.indices]
    votes = np.stack([np.bincount(row, minlength=10) for row in digits])
    right = int((votes.argmax(axis=1) == load("queries_labels")).sum())
    assert right == 285  # what the docstring promises
    assert lines[0] == "297 queries, 1500 stored images of 64 pixels, 5 neighbours"
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


def test_knn_saves_the_picture_where_it_is_told(run_knn, tmp_path):
    pytest.importorskip("matplotlib")
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
