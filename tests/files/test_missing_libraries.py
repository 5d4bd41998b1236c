import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from writing import contents

import dmlcpu
from dmlcpu.common.regions import Tensor
from dmlcpu.files import create, open_source


@pytest.mark.parametrize("suffix", ["safetensors", "zarr", "pb"])
def test_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str) -> None:
    package = {"pb": "onnx"}.get(suffix, suffix)
    for module in (package, f"{package}.numpy", f"{package}.numpy_helper"):
        monkeypatch.setitem(sys.modules, module, None)
    path = tmp_path / f"x.{suffix}"
    message = rf"need the package {package}: pip install '\.\[{package}\]' in a clone of dmlcpu"
    with pytest.raises(ImportError, match=message):
        create(path, {"y": Tensor((2,), np.dtype("f4"))}, "0a")
    assert contents(tmp_path) == []
    path.mkdir() if suffix == "zarr" else path.write_bytes(b"12345678")
    with pytest.raises(ImportError, match=message):
        open_source(path)


def test_says_what_to_install_for_hdf5(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(ImportError, match=r"need the package h5py: pip install '\.\[hdf5\]' in a clone of dmlcpu"):
        open_source(tmp_path / "x.h5")


def test_bfloat16_without_ml_dtypes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.save(tmp_path / "x.npy", np.ones(3, "u2"))
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    monkeypatch.delitem(np.sctypeDict, "bfloat16", raising=False)  # where ml_dtypes adds its own
    with pytest.raises(ImportError, match="pip install ml_dtypes"):
        open_source(tmp_path / "x.npy", dtype="bfloat16")


def test_npy_files_need_no_other_package(tmp_path: Path) -> None:
    code = """
import sys, numpy as np
from dmlcpu.files import create, open_source
from dmlcpu.common.regions import Tensor
writer = create("y.npy", {"y": Tensor((3,), np.dtype("f4"))}, "0a")
writer.sinks["y"].write((slice(0, 3),), np.ones(3, "f4"))
writer.finish()
writer.put_in_place()
with open_source("y.npy") as source:
    assert source.read().sum() == 3
found = {"onnx", "zarr", "safetensors", "ml_dtypes", "dask", "fsspec", "aiohttp", "h5py"} & set(sys.modules)
assert not found, found
"""
    environment = os.environ | {"PYTHONPATH": str(Path(dmlcpu.__file__).parents[1])}
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path, env=environment)
