"""ONNX's standard tests of backends: none fails that passes in ONNX Runtime."""

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
from onnx import numpy_helper  # noqa: E402

from dmlcpu.interop.onnx import prepare  # noqa: E402


def passes(run, case):
    """Return whether a test's results are those that it wants; any error is a failure."""
    inputs, outputs = ([as_array(each) for each in values] for values in case.data_sets[0])
    feeds = dict(zip((each.name for each in case.model.graph.input), inputs, strict=False))
    try:
        for mine, right in zip(run(case.model, feeds), outputs, strict=True):
            assert_close(mine, right, case)
    except Exception:
        return False
    return True


def as_array(value):
    return numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value


def assert_close(mine, right, case):
    if isinstance(right, list):
        for each, other in zip(mine, right, strict=True):
            assert_close(each, other, case)
    elif np.asarray(right).dtype.kind in "OUS":
        np.testing.assert_array_equal(mine, right)
    else:
        np.testing.assert_allclose(mine, right, rtol=case.rtol, atol=case.atol, strict=True)


def by_runtime(model, feeds):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, feeds)


@pytest.fixture(scope="module")
def good():
    """Return the tests that ONNX Runtime passes."""
    from onnx.backend.test.loader import load_model_tests

    found = [case for case in load_model_tests(kind="node") if case.data_sets and passes(by_runtime, case)]
    assert len(found) > 1_000
    return found


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("take", ["auto", "all"])
def test_none_is_worse_than_in_onnx_runtime(take, good):
    assert [
        case.name for case in good if not passes(lambda *given: prepare(given[0], take=take).run(given[1]), case)
    ] == []
