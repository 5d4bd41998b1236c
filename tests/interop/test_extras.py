"""Packages that `dmlcpu.interop` is for load only when asked for, and are named when they are missing."""

import importlib
from importlib.util import find_spec

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
    message = f"dmlcpu.interop.{extra} needs the package {extra}: pip install '.[{extra}]' in a clone of dmlcpu"
    assert run(code).strip() == message


@pytest.mark.parametrize("extra", EXTRAS)
def test_an_attribute_without_the_package_names_the_extra(extra):
    """It is an AttributeError, which hasattr and the tab key expect; the statement raises ImportError."""
    code = f"""
    import sys
    sys.modules |= dict.fromkeys({EXTRAS[extra]})
    import dmlcpu
    assert not hasattr(dmlcpu.interop, "{extra}")
    try:
        dmlcpu.interop.{extra}
    except AttributeError as error:
        print(error)
    try:
        from dmlcpu.interop import {extra}
    except ImportError as error:
        print(error)
    """
    message = f"dmlcpu.interop.{extra} needs the package {extra}: pip install '.[{extra}]' in a clone of dmlcpu"
    assert run(code).splitlines() == [f"module 'dmlcpu.interop' has no attribute '{extra}' here: {message}", message]


@pytest.mark.parametrize("name", ["dask", "numba", "onnx", "torch"])
def test_an_attribute_imports_its_module(name):
    if find_spec(name) is None:
        pytest.skip(f"{name} is not installed")
    code = f"""
    import sys
    import dmlcpu
    dmlcpu.interop
    assert "dmlcpu.interop.{name}" not in sys.modules
    print(dmlcpu.interop.{name}.__name__, dmlcpu.interop.{name} is sys.modules["dmlcpu.interop.{name}"])
    """
    assert run(code).split() == [f"dmlcpu.interop.{name}", "True"]


def test_dir_shows_the_modules():
    code = (
        "import dmlcpu, sys; print(*dir(dmlcpu.interop)); assert not [each for each in sys.modules if 'numba' in each]"
    )
    assert run(code).split() == ["dask", "numba", "onnx", "torch"]


@pytest.mark.parametrize("name", ["onnx", "torch"])
def test_dir_of_a_module_shows_its_public_names(name):
    pytest.importorskip(name)
    module = importlib.import_module(f"dmlcpu.interop.{name}")
    assert dir(module) == sorted(module.__all__)
    assert all(hasattr(module, each) for each in module.__all__)


def test_dmlcpu_alone_imports_none_of_the_packages():
    code = "import dmlcpu, sys; dmlcpu.interop, dmlcpu.top_k; print(*sys.modules)"
    assert not set(run(code).split()) & set(EXTRAS)
