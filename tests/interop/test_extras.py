"""Packages that `dmlcpu.interop` is for load only when asked for, and are named when they are missing."""

import pytest
from processes import run

# The modules of a package that dmlcpu imports.
EXTRAS = {
    "dask": ["dask", "dask.array"],
    "onnx": ["onnx", "onnx.reference", "onnx.reference.op_run"],
    "torch": ["torch"],
}


@pytest.mark.parametrize("extra", EXTRAS)
def test_import_without_the_package_names_the_extra(extra):
    code = f"""
    import sys
    sys.modules |= dict.fromkeys({EXTRAS[extra]})
    try:
        import dmlcpu.interop.{extra}
    except ImportError as error:
        print(error)
    """
    message = f"dmlcpu.interop.{extra} needs the package {extra}: pip install 'dmlcpu[{extra}]'"
    assert run(code).strip() == message


def test_dmlcpu_alone_imports_none_of_the_packages():
    code = "import dmlcpu, sys; dmlcpu.interop, dmlcpu.top_k; print(*sys.modules)"
    assert not set(run(code).split()) & set(EXTRAS)
