from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dx_models as dx
import numpy as np
import pytest
from dx_models import ROWS, Save, buffer, dispatch, run, scatter, scatter_nd, tensor, top_k, zeros

from dmlcpu import reference
from dmlcpu.batch import RunError, Timing, load_model, run_model
from dmlcpu.errors import DmlError
from dmlcpu.models import runner as runner_module


def test_top_k(save: Save) -> None:
    lines, buffers = run(save(top_k()))
    assert lines == [
        "Dispatch 'topk': 1 iterations, # ms median (CPU)",
        "Resource 'values': 11, 10, 9, 8, 7, 6",
        "Resource 'indices': 3, 2, 2, 3, 3, 2",
    ]
    assert [array.dtype.name for array in buffers.values()] == ["float32", "float32", "uint32"]
    np.testing.assert_array_equal(buffers["x"], ROWS)


def test_a_path_is_no_model(save: Save) -> None:
    path = save(top_k())
    with pytest.raises(TypeError, match=r"^run_model: model is '.*\.json'; allowed: what load_model returns$"):
        run_model(str(path))  # type: ignore[arg-type]


def test_a_timing_of_no_runs_is_refused() -> None:
    with pytest.raises(DmlError, match=r"^Timing: repeat is 0; allowed: an integer of at least 1$"):
        Timing(repeat=0)
    with pytest.raises(TypeError, match=r"^Timing: iterations is '2'; allowed: an integer$"):
        Timing(iterations="2")  # type: ignore[arg-type]


def test_scatter(save: Save) -> None:
    lines, _ = run(save(scatter()))
    assert lines == ["Dispatch 'scatter': 1 iterations, # ms median (CPU)", "Resource 'y': 1, 11, 3, 10, 9, 6, 7, 12"]


def test_scatter_in_place(save: Save) -> None:
    model = scatter()
    model["commands"][0]["bindings"]["OutputTensor"] = "x"
    _, buffers = run(save(model))
    assert buffers["x"].tolist() == [1, 11, 3, 10, 9, 6, 7, 12]


@pytest.mark.parametrize("owned", [False, True])
def test_matmul(save: Save, owned: bool) -> None:
    lines, _ = run(save(dx.matmul(owned=owned)))
    assert lines == ["Dispatch 'matmul': 1 iterations, # ms median (CPU)", "Resource 'y': -2, 32, -2, 65"]


def test_an_optional_tensor_may_be_bound(save: Save) -> None:
    model = dx.matmul()
    model["resources"]["zero"] = buffer("UINT8", [1])
    model["dispatchables"]["matmul"]["desc"]["AZeroPointTensor"] = tensor("UINT8", 1, 1, 1, 1)
    model["commands"][0]["bindings"]["AZeroPointTensor"] = "zero"
    lines, _ = run(save(model))
    assert lines[-1] == "Resource 'y': -2, 21, -2, 54"


def test_owned_tensors_are_bound_once(save: Save) -> None:
    """Later writes to the buffer do not reach the operator's copy, nor does the copy reach the buffer."""
    model = dx.matmul(owned=True)
    model["resources"]["at"] = buffer("UINT32", [0])
    model["resources"]["hundred"] = buffer("INT8", [100])
    model["dispatchables"]["overwrite"] = scatter_nd("INT8", [6], [1], [1])
    model["commands"].insert(0, dispatch("overwrite", **dx.scattering("b", "at", "hundred", "b")))
    lines, buffers = run(save(model))
    assert lines[-1] == "Resource 'y': -2, 32, -2, 65"
    assert buffers["b"].tolist() == [100, 0, 0, 1, -1, 10]


def test_effects_last_and_buffers_change_type(save: Save) -> None:
    """TOP_K1's indices are SCATTER_ND's indices, and its float values are printed as the integers they were made as."""
    model = top_k()
    model["resources"]["values"] = zeros("UINT32", 6)
    model["resources"]["marks"] = zeros("UINT8", 5)
    model["resources"]["ones"] = buffer("UINT8", [1] * 6)
    model["dispatchables"]["mark"] = scatter_nd("UINT8", [1, 5], [6, 1], [1, 6])
    model["commands"] += [dispatch("mark", **dx.scattering("marks", "indices", "ones", "marks")), *dx.printed("marks")]
    lines, _ = run(save(model))
    bits = np.array([11, 10, 9, 8, 7, 6], np.float32).view(np.uint32)
    assert lines[1] == f"Resource 'values': {', '.join(map(str, bits))}"
    assert lines[-1] == "Resource 'marks': 0, 0, 1, 1, 0"  # five, and not the three bytes of padding


def test_a_tensor_may_have_strides(save: Save) -> None:
    model = top_k()
    model["dispatchables"]["topk"]["desc"]["InputTensor"]["Strides"] = [12, 12, 1, 3]  # the columns of 4 rows of 3
    _, buffers = run(save(model))
    columns = np.array(ROWS, np.float32).reshape(4, 3).T
    expected = reference.top_k(columns, 2, index_dtype=np.uint32)
    np.testing.assert_array_equal(buffers["values"].reshape(3, 2), expected.values)
    np.testing.assert_array_equal(buffers["indices"].reshape(3, 2), expected.indices)


def test_a_broadcast_tensor_of_bytes(save: Save) -> None:
    """A buffer whose bytes are as many as the tensor's elements is still a buffer, seen through the strides."""
    model = scatter()
    model["resources"]["updates"] = buffer("UINT8", [5, 6, 7, 8])
    model["resources"]["x"] = model["resources"]["y"] = zeros("UINT8", 8)
    model["dispatchables"]["scatter"] = scatter_nd("UINT8", [8], [1], [1])
    _, buffers = run(save(model))
    assert buffers["y"].tolist() == [0, 0, 0, 0, 5, 0, 0, 0]
    model["dispatchables"]["scatter"]["desc"]["InputTensor"] = tensor("UINT8", 8, Strides=[0])
    model["resources"]["x"] = buffer("UINT8", [1, 2, 3, 4, 5, 6, 7, 8])
    _, buffers = run(save(model))
    assert buffers["y"].tolist() == [1, 1, 1, 1, 5, 1, 1, 1]


def test_tensors_within_a_buffer(save: Save) -> None:
    model = top_k()
    model["resources"]["all"] = buffer("FLOAT32", [0] * 4 + ROWS + [0] * 8)
    bindings = model["commands"][0]["bindings"]
    bindings["InputTensor"] = {"name": "all", "elementOffset": 4, "elementCount": 12}
    bindings["OutputValueTensor"] = [{"name": "all", "elementOffset": 2, "elementSizeInBytes": 32}]
    lines, buffers = run(save(model))
    assert lines[-1] == "Resource 'indices': 3, 2, 2, 3, 3, 2"
    assert buffers["all"].tolist() == [0] * 4 + ROWS + [11, 10, 9, 8, 7, 6, 0, 0]


def test_every_run_starts_with_the_initial_values(save: Save) -> None:
    model = scatter()
    model["commands"][0]["bindings"]["OutputTensor"] = "x"
    model["resources"]["at"] = buffer("UINT32", [0, 1, 2, 3])
    loaded = load_model(save(model))
    first = run_model(loaded, emit=lambda line: None)
    first["x"][:] = 0
    assert run_model(loaded, emit=lambda line: None)["x"].tolist() == [9, 10, 11, 12, 5, 6, 7, 8]


def test_print_verbose(save: Save) -> None:
    model = {
        "resources": {"A": buffer("FLOAT16", [1, 0.5, "nan"], sizeInBytes=64)},
        "dispatchables": {},
        "commands": [
            {"type": "print", "resource": "A", "verbose": True},
            {"type": "print", "resource": "A", "verbose": False},
        ],
    }
    lines, _ = run(save(model))
    assert lines == ["Resource 'A':\n[0] 1 (0x3C00)\n[1] 0.5 (0x3800)\n[2] nan (0x7E00)", "Resource 'A': 1, 0.5, nan"]


def write_model(entry: dict[str, Any], **command: Any) -> dict[str, Any]:
    return {
        "resources": {"A": entry},
        "dispatchables": {},
        "commands": [{"type": "writeFile", "resource": "A", **command}],
    }


@pytest.mark.parametrize(
    ("entry", "dimensions", "expected"),
    [
        (buffer("INT16", [1, 2, 3, 4, 5, 6]), [2, 3], np.array([[1, 2, 3], [4, 5, 6]], np.int16)),
        (buffer("INT16", [1, 2, 3]), None, np.array([1, 2, 3], np.int16)),
        (buffer("INT16", [1, 2, 3]), [], np.array([1, 2, 3], np.int16)),
        (buffer("UINT8", [1, 2], sizeInBytes=8), None, np.array([1, 2, 0, 0, 0, 0, 0, 0], np.uint8)),
        (buffer("UINT8", [1, 2], sizeInBytes=8), [1, 2], np.array([[1, 2]], np.uint8)),
        (buffer("FLOAT16", ["nan"]), [1, 1, 1], np.full((1, 1, 1), np.nan, np.float16)),
    ],
)
def test_write_npy(
    save: Save, tmp_path: Path, entry: dict[str, Any], dimensions: list[int] | None, expected: np.ndarray
) -> None:
    command = {"targetPath": "new/A.npy"} | ({} if dimensions is None else {"dimensions": dimensions})
    lines, _ = run(save(write_model(entry, **command)))
    target = tmp_path / "cwd" / "new" / "A.npy"  # in the current directory, whose folders are made
    assert lines == [f"Resource 'A' written to '{target}'"]
    got = np.load(target)
    assert got.dtype == expected.dtype
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("name", ["A.dat", "A.bin", "A.BIN"])
def test_write_raw(save: Save, tmp_path: Path, name: str) -> None:
    target = tmp_path / "elsewhere" / name
    run(save(write_model(buffer("UINT8", [1, 2, 3, 4, 5]), targetPath=str(target), dimensions=[7])))
    assert target.read_bytes() == bytes([1, 2, 3, 4, 5, 0, 0, 0])  # the whole buffer


def test_write_raw_of_mixed_types(save: Save, tmp_path: Path) -> None:
    entry = buffer("UNKNOWN", [{"type": "UINT8", "value": 7}, {"type": "UINT16", "value": 513}])
    _, buffers = run(save(write_model(entry, targetPath="A.bin")))
    assert (tmp_path / "cwd" / "A.bin").read_bytes() == bytes([7, 1, 2, 0])
    assert buffers["A"].tolist() == [7, 1, 2, 0]


def test_a_failing_dispatch_writes_nothing_and_is_named(save: Save, tmp_path: Path) -> None:
    model = scatter()
    model["resources"]["at"] = buffer("UINT32", [0, 1, 8, 2])
    model["resources"]["y"] = buffer("FLOAT32", [7] * 8)
    model["commands"].insert(0, {"type": "writeFile", "resource": "y", "targetPath": "before.npy"})
    model["commands"].append({"type": "writeFile", "resource": "y", "targetPath": "after.npy"})
    lines: list[str] = []
    with pytest.raises(RunError) as caught:
        run_model(load_model(save(model)), emit=lines.append)
    assert caught.value.path == "$.commands[1]"
    assert str(caught.value).startswith("$.commands[1]: DML_OPERATOR_SCATTER_ND: IndicesTensor[2, 0] is 8; allowed: ")
    assert [path.name for path in (tmp_path / "cwd").iterdir()] == ["before.npy"]
    assert len(lines) == 1


def test_a_refused_scale_fails_its_command(save: Save) -> None:
    model = dx.matmul()
    model["resources"]["one"] = buffer("FLOAT32", [0])
    with pytest.raises(
        RunError, match=r"^\$\.commands\[0\]: DML_OPERATOR_QUANTIZED_LINEAR_MATRIX_MULTIPLY: AScaleTensor"
    ):
        run(save(model))


def test_a_file_that_cannot_be_written_fails_its_command(save: Save, tmp_path: Path) -> None:
    (tmp_path / "cwd" / "A.npy").mkdir()
    with pytest.raises(RunError, match=r"^\$\.commands\[0\]\.targetPath: 'A\.npy' cannot be written: it is a folder"):
        run(save(write_model(buffer("UINT8", [1]), targetPath="A.npy")))
    assert [path.name for path in (tmp_path / "cwd").iterdir()] == ["A.npy"]


def test_no_memory_for_a_command_fails_it(save: Save, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(values: np.ndarray) -> str:
        raise MemoryError

    monkeypatch.setattr(runner_module, "flat", fail)
    with pytest.raises(RunError, match=r"^\$\.commands\[1\]: not enough memory$"):
        run(save(top_k()))


def test_no_memory_for_a_resource_fails_it(save: Save, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(length: int, dtype: Any) -> np.ndarray:
        if length == 2**35:
            raise MemoryError
        return np.empty(length, dtype)

    monkeypatch.setattr("dmlcpu.models.resources.aligned_empty", fail)
    model = top_k()
    model["resources"]["big"] = buffer("UINT8", [1], sizeInBytes=2**35)
    with pytest.raises(RunError, match=r"^\$\.resources\.big: not enough memory$"):
        run(save(model))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make each look at the clock one millisecond later than the one before it."""
    ticks = iter(range(10_000))
    monkeypatch.setattr(runner_module, "time", SimpleNamespace(perf_counter=lambda: next(ticks) / 1000))


def timed(save: Save, **options: Any) -> list[str]:
    model = top_k()
    del model["commands"][1:]
    lines: list[str] = []
    run_model(load_model(save(model)), timing=Timing(**options), emit=lines.append)
    return lines


@pytest.mark.usefixtures("clock")
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, ["Dispatch 'topk': 1 iterations, 1.0000 ms median (CPU)"]),
        ({"iterations": 3}, ["Dispatch 'topk': 3 iterations, 1.0000 ms median (CPU)"]),
        ({"iterations": 3, "repeat": 4}, ["Dispatch 'topk': 3 iterations, 0.2500 ms median (CPU)"]),
        # Two looks at the clock an iteration, after the one that begins it all.
        ({"milliseconds": 9.5}, ["Dispatch 'topk': 5 iterations, 1.0000 ms median (CPU)"]),
        ({"milliseconds": 0}, ["Dispatch 'topk': 1 iterations, 1.0000 ms median (CPU)"]),
        ({"milliseconds": 2.5, "iterations": 100}, ["Dispatch 'topk': 2 iterations, 1.0000 ms median (CPU)"]),
        (
            {"verbosity": 1},
            [
                "Initialize 'topk': 1.0000 ms",
                "Dispatch 'topk': 1 iterations",
                "CPU Timings (Hot)  : 1 samples, 1.0000 ms average, 1.0000 ms min, 1.0000 ms median, 1.0000 ms max",
            ],
        ),
        (
            {"verbosity": 2, "iterations": 3, "warmup_samples": 2},
            [
                "Initialize 'topk': 1.0000 ms",
                "Dispatch 'topk': 3 iterations",
                "CPU Timings (Cold) : 2 samples, 1.0000 ms average, 1.0000 ms min, 1.0000 ms median, 1.0000 ms max",
                "CPU Timings (Hot)  : 1 samples, 1.0000 ms average, 1.0000 ms min, 1.0000 ms median, 1.0000 ms max",
                "The timings of each iteration:",
                "iteration 0: 1.0000 ms (CPU)",
                "iteration 1: 1.0000 ms (CPU)",
                "iteration 2: 1.0000 ms (CPU)",
            ],
        ),
    ],
)
def test_timing(save: Save, options: dict[str, Any], expected: list[str]) -> None:
    assert timed(save, **options) == expected


@pytest.mark.parametrize(
    ("samples", "warmup", "cold", "hot"),
    [
        ([5.0], 2, None, "1 samples, 5.0000 ms average, 5.0000 ms min, 5.0000 ms median, 5.0000 ms max"),
        (
            [9.0, 1.0, 4.0],
            1,
            "1 samples, 9.0000 ms average, 9.0000 ms min, 9.0000 ms median, 9.0000 ms max",
            "2 samples, 2.5000 ms average, 1.0000 ms min, 4.0000 ms median, 4.0000 ms max",
        ),
        (
            [9.0, 1.0, 4.0],
            5,
            "2 samples, 5.0000 ms average, 1.0000 ms min, 9.0000 ms median, 9.0000 ms max",
            "1 samples, 4.0000 ms average, 4.0000 ms min, 4.0000 ms median, 4.0000 ms max",
        ),
        ([9.0, 1.0], 0, None, "2 samples, 5.0000 ms average, 1.0000 ms min, 9.0000 ms median, 9.0000 ms max"),
    ],
)
def test_cold_and_hot_samples(samples: list[float], warmup: int, cold: str | None, hot: str) -> None:
    timing = Timing(warmup_samples=warmup, verbosity=1)
    expected = [f"Dispatch 'd': {len(samples)} iterations"]
    expected += [f"CPU Timings (Cold) : {cold}"] if cold else []
    expected += [f"CPU Timings (Hot)  : {hot}"]
    assert list(runner_module._report("d", samples, timing)) == expected


def test_the_operator_runs_as_often_as_asked(save: Save, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = []
    real = runner_module.compile_operator

    def counting(desc: Any) -> Any:
        operator = real(desc)
        return lambda **tensors: runs.append(operator(**tensors))

    monkeypatch.setattr(runner_module, "compile_operator", counting)
    timed(save, iterations=3, repeat=4)
    assert len(runs) == 12
