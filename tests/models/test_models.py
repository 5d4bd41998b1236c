from processes import run

import dmlcpu.models
from dmlcpu import batch


def test_names_are_those_of_batch_and_load_neither_numpy_nor_numba() -> None:
    assert dmlcpu.models.__all__ == ["Model", "ModelError", "RunError", "Timing", "load_model", "run_model"]
    for name in dmlcpu.models.__all__:
        assert getattr(dmlcpu.models, name) is getattr(batch, name)
    assert not hasattr(dmlcpu.models, "load")
    run("import sys, dmlcpu.models; dmlcpu.models.ModelError; assert not {'numpy', 'numba'} & set(sys.modules)")
