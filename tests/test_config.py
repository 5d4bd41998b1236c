import json
import platform
from types import SimpleNamespace

import numba
import numpy as np
import pytest

import dmlcpu
from dmlcpu.config import as_text, cache_folder, config
from dmlcpu.kernels import registry
from dmlcpu.operators import OPERATORS
from dmlcpu.runtime import isa, quota


def test_config_shows_the_settings_in_use() -> None:
    shown = config()
    assert list(shown) == ["versions", "compilation", "isa", "threads", "results", "cache", "operators", "kernels"]
    assert shown["operators"]["top_k"] == "TOP_K, TOP_K1"
    assert set(shown["operators"]) == set(OPERATORS)
    assert shown["versions"]["dmlcpu"] == dmlcpu.__version__
    assert shown["versions"]["python"] == platform.python_version()
    assert shown["versions"]["numpy"] == np.__version__
    assert shown["versions"]["numba"] == numba.__version__
    assert shown["isa"]["detected"] == isa.highest(isa.detected()).name.lower()
    assert shown["isa"]["allowed"] == isa.highest(isa.allowed()).name.lower()
    assert shown["threads"]["used"] == dmlcpu.get_num_threads()
    assert [kernel["name"] for kernel in shown["kernels"]] == [entry.name for entry in registry.available()]
    assert json.loads(json.dumps(shown)) == shown


def test_config_shows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DMLCPU_ISA", "avx2")
    monkeypatch.delenv("DMLCPU_NUM_THREADS", raising=False)
    assert config()["isa"]["DMLCPU_ISA"] == "avx2"
    assert config()["threads"]["DMLCPU_NUM_THREADS"] is None


@pytest.mark.parametrize("found", [1.5, None])
def test_config_shows_the_quota(monkeypatch: pytest.MonkeyPatch, found: float | None) -> None:
    monkeypatch.setattr(quota, "cpu_quota", lambda: found)
    assert config()["threads"]["cpu_quota"] == found


def test_as_text() -> None:
    shown = {
        "versions": {"dmlcpu": "1.0", "py": "3"},
        "threads": {"used": 2, "DMLCPU_NUM_THREADS": None},
        "kernels": [{"operator": "top_k", "stage": "select", "name": "lockstep", "isa": "generic"}],
    }
    assert as_text(shown) == (
        "versions\n"
        "  dmlcpu  1.0\n"
        "  py      3\n"
        "threads\n"
        "  used                2\n"
        "  DMLCPU_NUM_THREADS  not set\n"
        "kernels\n"
        "  top_k select  lockstep (generic)"
    )


def test_show_config_prints_it(capsys: pytest.CaptureFixture[str]) -> None:
    dmlcpu.show_config()
    out = capsys.readouterr().out
    assert out == as_text(config()) + "\n"
    assert f"  dmlcpu    {dmlcpu.__version__}\n" in out


def test_cache_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    class Compiled:
        def __init__(self, path: str | None) -> None:
            self.share = self
            self.stats = self
            self.cache_path = path

    def entries(*paths: str | None) -> list[SimpleNamespace]:
        return [SimpleNamespace(kernel=Compiled(path)) for path in paths]

    monkeypatch.setattr(registry, "available", lambda: entries("/c/top_k/__pycache__", "/c/scatter_nd/__pycache__"))
    assert cache_folder() == "/c"
    monkeypatch.setattr(registry, "available", lambda: entries(None, None))
    assert cache_folder() == "none: no folder can be written to, so every process compiles its kernels"
