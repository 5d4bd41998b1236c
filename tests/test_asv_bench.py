"""The asv benchmarks: each is found by asv's naming, runs, and times what gives the right result."""

import importlib
import os
import re
import sys
from dataclasses import replace
from itertools import product
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from dmlcpu import reference

ASV_BENCH = Path(__file__).parents[1] / "asv_bench"
MODULES = ("top_k", "scatter_nd", "quantized_matmul", "overhead")
MEASURED = re.compile("(time|timeraw|peakmem)_")
MUST_RUN = ("dmlcpu", "dmlcpu compiled", "numpy")


def load(name: str) -> ModuleType:
    """Import a file of asv_bench, which is not a package of the distribution."""
    path, environment = list(sys.path), dict(os.environ)
    sys.path.insert(0, str(ASV_BENCH))
    try:
        return importlib.import_module(name)
    finally:
        sys.path[:] = path
        os.environ.clear()
        os.environ.update(environment)


def benchmarks(module):
    """Yield each benchmark class of a module with the names of its measured methods, as asv finds them."""
    for name, value in vars(module).items():
        methods = [method for method in dir(value) if MEASURED.match(method)] if isinstance(value, type) else []
        if methods:
            yield pytest.param(value, methods, id=f"{module.__name__}.{name}")


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Shrink all cases, and take no rests."""
    for table in load("compare").TABLES.values():
        for name, case in table.items():
            monkeypatch.setitem(table, name, case.shrunk())
    monkeypatch.setattr(load("benchmarks.common"), "REST", 0)
    monkeypatch.setattr(load("benchmarks.common"), "WARM", 0)
    monkeypatch.setattr(load("benchmarks.overhead"), "CALLS", 2)
    load("benchmarks.peers").build.cache_clear()


def expected(implementation, case):
    """Return what the reference makes of a case, as a tuple of arrays."""
    inputs = case.inputs()
    if hasattr(case, "axis"):
        return reference.top_k(inputs, case.k, axis=case.axis)
    if hasattr(case, "m"):
        return (reference.quantized_matmul(*inputs),)
    x, indices, updates = inputs
    # The untimed call has been in place, too.
    for _ in range(2 if case.in_place and implementation != "onnxruntime" else 1):
        x = reference.scatter_nd(x, indices, updates, reduction=case.reduction)
    return (x,)


def as_arrays(result):
    """Return a contender's result as a tuple of arrays."""
    results = result if isinstance(result, tuple | list) else (result,)
    return tuple(_as_array(result) for result in results)


def _as_array(result):
    if type(result).__module__ == "torch":
        import torch

        if result.dtype == torch.bfloat16:
            return result.view(torch.uint16).numpy().view("bfloat16")
        return result.numpy()
    return np.asarray(result)


def check(implementation, case, result):
    """Compare a result with the reference: ours to the bit, a peer's so far that it has done the same work."""
    wanted, found = expected(implementation, case), as_arrays(result)
    if implementation in ("numpy", "onnxruntime", "torch"):
        # Peers promise neither the order of ties nor the last bit.
        wanted, found = wanted[:1], found[:1]
        tolerance = 1 if hasattr(case, "m") else 1e-6
        np.testing.assert_allclose(found[0].astype(np.float64), wanted[0].astype(np.float64), rtol=0, atol=tolerance)
        assert [array.dtype for array in found] == [array.dtype for array in wanted]
        return
    assert len(found) == len(wanted)
    for ours, theirs in zip(found, wanted, strict=True):
        assert ours.shape == theirs.shape
        assert ours.tobytes() == theirs.astype(ours.dtype).tobytes()


@pytest.mark.parametrize(
    ("benchmark", "methods"), [found for name in MODULES for found in benchmarks(load(f"benchmarks.{name}"))]
)
def test_benchmark(benchmark, methods):
    ran = []
    for method, params in product(methods, product(*benchmark.params)):
        instance = benchmark()
        try:
            instance.setup(*params)
        except NotImplementedError:
            assert params[0] not in MUST_RUN
            continue
        check(params[0], instance.cases[params[1]], getattr(instance, method)(*params))
        ran.append(params)
    assert ran


@pytest.mark.parametrize("benchmark", [found.values[0] for found in benchmarks(load("benchmarks.startup"))])
def test_startup(benchmark):
    """asv runs the code in a new process; here it is enough that it is right."""
    for params in product(*benchmark.params):
        instance = benchmark()
        (method,) = (getattr(instance, name) for name in dir(instance) if MEASURED.match(name))
        names = {}
        *preparation, last = method(*params).splitlines()
        exec("\n".join(preparation), names)
        if last.startswith("import"):
            assert last == f"import {params[0]}"
            continue
        result, wanted = eval(last, names), eval(last, {**names, "dmlcpu": reference})
        for ours, theirs in zip(as_arrays(result), as_arrays(wanted), strict=True):
            np.testing.assert_array_equal(ours, theirs, strict=True)


def test_what_is_not_installed_is_skipped(monkeypatch):
    common, peers = load("benchmarks.common"), load("benchmarks.peers")
    case = common.TINY["top_k"]
    for name in ("onnxruntime", "torch"):
        monkeypatch.setitem(sys.modules, name, None)
        with pytest.raises(NotImplementedError, match=f"{name} is not installed|onnx is not installed"):
            peers.build(case, name)


def test_cases_have_the_sizes_their_names_say():
    common = load("benchmarks.common")
    assert str(common.TopKCase((3, 4), 2, axis=0, dtype="int8", data="sorted")) == "3x4 k 2 axis 0 int8 sorted"
    assert str(common.ScatterNDCase((5, 6), 3, rows=2, reduction="add", in_place=True)) == (
        "3 of 6 on 2 rows into 5x6 add in place float32"
    )
    assert str(common.QuantizedMatmulCase(2, 3, 4, per_row=True, constant_b=False)) == (
        "2x3x4 u8*s8 to u8 per row per column fresh B"
    )
    x, indices, updates = common.ScatterNDCase((50, 60), 1_000, coordinates=2).inputs()
    assert (x.shape, indices.shape, updates.shape) == ((50, 60), (1_000, 2), (1_000,))
    assert len(np.unique(indices, axis=0)) == 1_000  # each update has a place of its own


def test_most_products_are_inside_the_range_of_y():
    """A case whose results are all clipped would show nothing."""
    for case in load("benchmarks.common").QUANTIZED_MATMUL_PARAMETERS.values():
        y = reference.quantized_matmul(*replace(case, m=20, k=512, n=50).inputs())
        limits = np.iinfo(y.dtype)
        assert ((y > limits.min) & (y < limits.max)).mean() > 0.5


def test_compare_prints_a_table(capsys):
    load("compare").main(["tiny", "--cases", "1x64 k 8", "--turns", "2", "--implementations", "dmlcpu", "numpy"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[:4] == [
        "Milliseconds, medians of 2 turns, 2 threads; in brackets: times as long as dmlcpu.",
        "",
        "| case | dmlcpu | numpy |",
        "|---|---|---|",
    ]
    assert re.fullmatch(r"\| top_k: 1x64 k 8 float32 \| [\d.e-]+ \| [\d.e-]+ \([\d.]+x\) \|", lines[4])
    assert len(lines) == 5


def test_compare_leaves_out_what_cannot_be_done(capsys):
    arguments = ["--cases", "on 2000 rows", "--turns", "1", "--implementations", "dmlcpu", "dmlcpu out"]
    load("compare").main(["scatter_nd", *arguments])
    out, err = capsys.readouterr()
    assert out.splitlines()[-1].endswith("| - |")
    assert err.endswith(": no dmlcpu out: in place, out is x\n")


def test_compare_refuses_unknown_tables(capsys):
    with pytest.raises(SystemExit):
        load("compare").main(["topk"])
    assert "no table topk; there are top_k, top_k_types, " in capsys.readouterr().err


def test_asv_finds_the_benchmarks():
    """What asv.conf.json says is where the benchmarks are."""
    json5 = pytest.importorskip("json5")
    settings = json5.loads((ASV_BENCH / "asv.conf.json").read_text("utf-8"))
    assert (ASV_BENCH / settings["benchmark_dir"] / "__init__.py").is_file()
    assert (ASV_BENCH / settings["repo"] / "pyproject.toml").is_file()
