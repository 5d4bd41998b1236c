"""ONNX's standard tests of backends: none fails that passes in ONNX Runtime."""

import sys
from types import ModuleType

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
from onnx import numpy_helper  # noqa: E402

from dmlcpu.interop.onnx.backend import BackendRep  # noqa: E402
from dmlcpu.interop.onnx.choice import Wanted  # noqa: E402


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


def options():
    """Return those of sessions whose threads do not spin, as there are thousands of small ones."""
    found = onnxruntime.SessionOptions()
    found.log_severity_level, found.intra_op_num_threads = 4, 1
    return found


def by_runtime(model, feeds):
    session = onnxruntime.InferenceSession(model.SerializeToString(), options(), providers=["CPUExecutionProvider"])
    return session.run(None, feeds)


# No kernel here pools, and ONNX takes 10 s to compute the expected results.
LEFT_OUT = [f"onnx.backend.test.case.node.{name}" for name in ("averagepool", "lppool", "maxpool")]


@pytest.fixture(scope="module")
def cases():
    from onnx.backend.test.loader import load_model_tests

    with pytest.MonkeyPatch.context() as patch:
        for name in LEFT_OUT:
            patch.setitem(sys.modules, name, ModuleType(name))
        return [case for case in load_model_tests(kind="node") if case.data_sets]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("take", ["auto", "all"])
def test_none_is_worse_than_in_onnx_runtime(take, cases):
    """Only models that fail are run in ONNX Runtime too."""
    failed = [
        case
        for case in cases
        if not passes(lambda model, feeds: BackendRep(model, Wanted(take), options()).run(feeds), case)
    ]
    assert len(cases) - len(failed) > 1_000
    assert [case.name for case in failed if passes(by_runtime, case)] == []
