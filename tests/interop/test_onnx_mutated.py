"""Random models, changed in ways that ONNX's IR or ONNX Runtime allows: what ONNX Runtime runs is run, equally."""

import copy

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
from onnx import helper, numpy_helper  # noqa: E402
from onnx_blocks import WIDTH, made  # noqa: E402
from onnx_changes import FIRST, LATER, any_of  # noqa: E402

from dmlcpu.interop.onnx import InferenceSession  # noqa: E402

TAKEN = "TopK", "ScatterND", "ScatterElements", "QLinearMatMul", "MatMulInteger"


def options():
    """Return those of sessions without threads of their own, because there are thousands of small ones."""
    found = onnxruntime.SessionOptions()
    found.log_severity_level, found.intra_op_num_threads = 4, 1
    return found


def theirs(model):
    return onnxruntime.InferenceSession(model, options(), providers=["CPUExecutionProvider"])


def saved(model, draw, folder):
    """Write a model, and its larger constants to one file, or to files with their names; return its path."""
    path, are_names = folder / "model.onnx", all(each.name.isidentifier() for each in model.graph.initializer)
    options = {"size_threshold": 60, "convert_attribute": bool(draw.integers(2))}
    if draw.integers(2) and are_names:
        options["all_tensors_to_one_file"] = False
    else:
        options["location"] = "its weights.bin"
    onnx.save(copy.deepcopy(model), path, save_as_external_data=True, **options)
    return str(path)


def inputs_of(model, draw):
    """Return inputs: x as an array or as lists, some defaults, and what no node reads."""
    tensors, feeds = {each.name: each for each in model.graph.initializer}, {}
    for each in model.graph.input:
        if each.name in tensors:
            if draw.integers(2):
                feeds[each.name] = numpy_helper.to_array(tensors[each.name])
        elif "unread" in each.name:
            feeds[each.name] = np.zeros(2, helper.tensor_dtype_to_np_dtype(each.type.tensor_type.elem_type))
        else:
            sizes = each.type.tensor_type.shape.dim
            rows = sizes[0].dim_value if sizes and sizes[0].dim_value > 0 else draw.integers(6)
            x = draw.integers(-9, 10, (rows, WIDTH)).astype(np.float32)
            if not draw.integers(6):
                x = np.where(draw.integers(6, size=x.shape), x, any_of(draw, [np.nan, np.inf, -np.inf, -0.0]))
                x = x.astype(np.float32)
            feeds[each.name] = any_of(draw, [x, x.tolist(), np.asfortranarray(x), [*x], x[::-1, ::-1]])
    return feeds


def is_named_and_needed(each):
    return each.op_type in TAKEN and each.name and "read by none" not in each.output[0]


def check(seed, folder):
    """Compare the answers to one model; return whether ONNX Runtime runs it."""
    draw = np.random.default_rng(seed)
    model = made(draw)
    first = draw.integers(len(FIRST) + 1)
    for change in (*FIRST[first : first + 1], *(any_of(draw, LATER) for _ in range(draw.integers(1, 7)))):
        change(model, draw)
    feeds = inputs_of(model, draw)
    given = model.SerializeToString() if draw.integers(4) else saved(model, draw, folder)
    try:
        wanted = theirs(given).run(None, feeds)
    except Exception:  # ONNX Runtime's errors have no class in common
        return False
    if any(type(each).__name__ == "SparseTensor" for each in wanted):  # in parts it is an array
        return False
    some = [each.name for each in model.graph.node if is_named_and_needed(each) and draw.integers(2)]
    for take in ("all", any_of(draw, ["auto", some])):
        found = InferenceSession(given, options(), take=take).run(None, feeds)
        for mine, right in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(mine, right, strict=True)
    return True


@pytest.mark.parametrize("seed", range(20))
def test_what_onnx_runtime_runs_is_run(seed, tmp_path):
    check(seed, tmp_path)


@pytest.mark.slow
def test_many_models(tmp_path):
    assert sum(check(seed, tmp_path) for seed in range(20, 520)) > 350
