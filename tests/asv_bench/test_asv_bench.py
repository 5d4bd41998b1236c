"""The asv benchmarks: asv finds each by its name, it runs, and the timed call gives the right result."""

import contextlib
import json
import os
import re
import select
import subprocess
import sys
import threading
from functools import lru_cache
from itertools import product

import numpy as np
import pytest
from asv_files import ASV_BENCH, check, load

import dmlcpu
from dmlcpu.runtime.threads import Budget, budget

MEASURED = re.compile("(time|timeraw|peakmem)_")
MUST_RUN = ("dmlcpu", "dmlcpu 1 thread", "numpy")


def modules():
    """Return the files of benchmarks."""
    return [load(f"benchmarks.{path.stem}") for path in sorted((ASV_BENCH / "benchmarks").glob("[!_]*.py"))]


def benchmarks():
    """Yield each benchmark of cases with the names of its measured methods, as asv finds them."""
    for module in modules():
        for name, value in vars(module).items():
            methods = [method for method in dir(value) if MEASURED.match(method)] if hasattr(value, "cases") else []
            if methods:
                yield pytest.param(value, methods, id=f"{module.__name__}.{name}")


@pytest.mark.parametrize(("benchmark", "methods"), list(benchmarks()))
def test_benchmark_runs_and_gives_the_right_result(benchmark, methods):
    ran, alone, missing = [], False, True
    for method, params in product(methods, product(*benchmark.params)):
        instance = benchmark()
        try:
            instance.setup(*params)
        except NotImplementedError as error:
            alone |= "no other library" in str(error)  # where no peer is installed
            missing &= "is not installed" in str(error)
            assert alone or params[0] not in MUST_RUN
        else:
            check(params[0], instance.cases[params[1]], getattr(instance, method)(*params))
            ran.append(params)
        getattr(instance, "teardown", lambda *params: None)(*params)  # asv calls it in either case
    if not ran and missing:
        pytest.skip("no contender is installed")
    assert ran or alone


@pytest.mark.parametrize("module", [module for module in modules() if hasattr(module, "Kernels")])
def test_kernels_are_called_within_limits(monkeypatch, module):
    benchmark, budgets = module.Kernels(), []
    kernel, case = (values[0] for values in benchmark.params)
    monkeypatch.setattr(type(benchmark.cases[case]), "dmlcpu_out", lambda case: lambda: budgets.append(budget()))
    benchmark.setup(kernel, case)
    assert set(budgets) == {Budget(dmlcpu.get_num_threads(), kernel=kernel)}
    assert budget().kernel is None


def test_thresholds_marks_the_kernel_that_the_plan_chooses(monkeypatch, capsys):
    thresholds = load("thresholds")
    monkeypatch.setattr(thresholds, "ELEMENTS", 1 << 12)
    monkeypatch.setattr(thresholds, "LENGTHS", (256,))
    monkeypatch.setattr(thresholds, "KS", (1, 256, 512))
    monkeypatch.setattr(sys, "argv", ["thresholds.py"])
    thresholds.main()
    header, _, *rows = [line.strip("| ").split(" | ") for line in capsys.readouterr().out.splitlines()]
    assert [row[:2] for row in rows] == [["256", "1"], ["256", "256"]]
    for row, chosen in zip(rows, ("lockstep", "select_sort"), strict=True):
        assert [name for name, cell in zip(header, row, strict=True) if cell.endswith(" *")] == [chosen]
        assert row[header.index("strided_insert")] == "-"  # it is for other axes than the last


def test_build_raises_if_a_peer_is_not_installed(monkeypatch):
    common, peers = load("benchmarks.common"), load("benchmarks.peers")
    case = common.TINY["top_k"]
    for name in ("onnxruntime", "torch"):
        monkeypatch.setitem(sys.modules, name, None)
        with pytest.raises(NotImplementedError, match=f"{name} is not installed|onnx is not installed"):
            peers.build(case, name)


def compare(*arguments):
    """Run compare.py on one tiny case, two turns."""
    load("compare").main(["tiny", "--cases", "1x64 k 8", "--turns", "2", *arguments])


def test_compare_prints_a_table(capsys):
    compare("--implementations", "dmlcpu", "numpy")
    lines = capsys.readouterr().out.splitlines()
    assert lines[:6] == [
        "## steady: calls follow one another",
        "",
        "Milliseconds, medians of 2 turns, 2 threads; in brackets: times as long as dmlcpu.",
        "",
        "| case | dmlcpu | numpy |",
        "|---|---|---|",
    ]
    assert re.fullmatch(r"\| top_k: 1x64 k 8 float32 \| [\d.e-]+ \| [\d.e-]+ \([\d.]+x\) \|", lines[6])
    assert lines[7:] == [""]


def test_compare_prints_and_keeps_a_table_for_each_regime(capsys, tmp_path):
    regimes = ["steady", "paused", "busy"]
    names = ["dmlcpu", "dmlcpu 1 thread"]
    compare("--implementations", *names, "--regime", *regimes, "--json", str(tmp_path / "medians.json"))
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[1].rstrip(":") for line in lines if line.startswith("## ")] == regimes
    assert "| case | dmlcpu | dmlcpu 1 thread | dmlcpu steady | paused / steady |" in lines
    results = json.loads((tmp_path / "medians.json").read_text("utf-8"))
    assert list(results) == regimes
    for regime, cases in results.items():
        (figures,) = cases.values()
        spread = [f"{name} {kind}" for name in names for kind in ("mean", "p99")]
        more = {"paused": ["dmlcpu steady"], "busy": spread}.get(regime, [])
        assert list(figures) == [*names, *more]
        assert min(figures.values()) > 0


def test_compare_shows_how_uneven_calls_are_where_threads_compete(monkeypatch, capsys):
    module = load("compare")
    samples = {"dmlcpu": [1e-3] * 98 + [5e-3, 7e-3], "torch": [2e-3] * 100}
    monkeypatch.setattr(module.peers, "build", lru_cache(lambda case, name: lambda: None))
    monkeypatch.setattr(module.Contender, "turn", lambda contender, calls: samples[contender.implementation])
    figures = module.measure("a case", list(samples), 1, "busy")
    shown = {name: module.cell(figures, name) for name in samples}
    assert shown == {"dmlcpu": "1, 1.1, 5", "torch": "2, 2, 2 (2.00x, 1.82x, 0.40x)"}
    assert module.cell(figures, "numpy") == "-"


def test_crowded_turn_calls_the_other_libraries_before_each_call(monkeypatch, capsys):
    monkeypatch.setattr(load("compare"), "CALLS", 1)
    case, peers = load("benchmarks.common").TINY["top_k"], load("benchmarks.peers")
    called = []
    for name in peers.WITH_THREADS:
        monkeypatch.setattr(type(case), name, lambda case, name=name: lambda: called.append(name))
    compare("--regime", "crowded", "--implementations", "dmlcpu", "onnxruntime")
    assert "| case | dmlcpu | onnxruntime |" in capsys.readouterr().out
    first = ["dmlcpu", "onnxruntime", "torch"]
    turn = ["onnxruntime", "torch", "dmlcpu", "dmlcpu", "torch", "onnxruntime"]
    assert called == [*first, *turn, *turn]


def test_teardown_works_after_a_failed_setup(monkeypatch):
    """asv calls it, and reports its error as the benchmark's."""
    for name in ("onnx", "onnxruntime", "torch"):
        monkeypatch.setitem(sys.modules, name, None)
    benchmark = load("benchmarks.regimes").Crowded()
    params = [values[0] for values in benchmark.params]
    with pytest.raises(NotImplementedError, match="no other library"):
        benchmark.setup(*params)
    benchmark.teardown(*params)


def test_crowded_leaves_out_a_case_without_other_libraries(monkeypatch, capsys):
    for name in ("onnx", "onnxruntime", "torch"):
        monkeypatch.setitem(sys.modules, name, None)
    compare("--regime", "crowded", "--implementations", "dmlcpu")
    out, err = capsys.readouterr()
    assert out.splitlines()[-2] == "| top_k: 1x64 k 8 float32 | - |"
    assert err.endswith(": no dmlcpu: no other library with threads can do the case\n")


def test_settings_of_limits_only_the_one_thread_contender():
    settings_of, before = load("benchmarks.peers").settings_of, dmlcpu.get_num_threads()
    dmlcpu.set_num_threads(3)
    try:
        for name, threads in (("dmlcpu", 3), ("dmlcpu 1 thread", 1), ("torch", 3)):
            with contextlib.suppress(KeyError), settings_of(name):
                assert dmlcpu.get_num_threads() == threads
                raise KeyError
            assert dmlcpu.get_num_threads() == 3
    finally:
        dmlcpu.set_num_threads(before)


@pytest.mark.parametrize("error", [KeyError, KeyboardInterrupt])
def test_busy_processes_start_and_end(monkeypatch, error):
    conditions, started, popen = load("benchmarks.conditions"), [], subprocess.Popen

    def start(*args, **kwargs):
        started.append(popen(*args, **kwargs))
        return started[-1]

    monkeypatch.setattr(conditions, "BUSY_CORES", 2)
    monkeypatch.setattr(conditions.subprocess, "Popen", start)
    with contextlib.suppress(error), conditions.surroundings("busy"):
        assert [process.poll() for process in started] == [None, None]
        raise error
    assert None not in [process.returncode for process in started]
    with conditions.surroundings("steady"):
        assert len(started) == 2


@pytest.mark.skipif(sys.platform == "win32", reason="needs a pipe that a grandchild inherits")
def test_a_busy_process_ends_with_its_parent():
    """The killed parent cannot end the child. The end of the child closes the pipe that both write to."""
    code = (
        "import os, signal\n"
        "from benchmarks import conditions\n"
        "conditions.BUSY_CORES, popen = 1, conditions.subprocess.Popen\n"
        "conditions.subprocess.Popen = lambda *args, **kwargs: popen(*args, **kwargs, pass_fds=[{}])\n"
        "with conditions.surroundings('busy'):\n"
        "    os.write({}, b'busy')\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    read, write = os.pipe()
    try:
        parent = subprocess.run([sys.executable, "-c", code.format(write, write)], cwd=ASV_BENCH, pass_fds=[write])
        os.close(write)
        assert parent.returncode < 0
        assert os.read(read, 100) == b"busy"
        assert select.select([read], [], [], 30)[0]
        assert os.read(read, 100) == b""
    finally:
        os.close(read)


@pytest.mark.parametrize("python_threads", [1, 3])
def test_python_threads_share_all_calls(monkeypatch, python_threads):
    module = load("benchmarks.python_threads")
    monkeypatch.setattr(module, "MIXED", [load("benchmarks.common").TINY["top_k"]])
    monkeypatch.setattr(module, "CALLS", 12)
    callers = []
    monkeypatch.setattr(module, "build", lambda case, name: lambda: callers.append(threading.get_ident()))
    benchmark = module.PythonThreads()
    benchmark.setup(python_threads)
    callers.clear()
    benchmark.time_4800_calls(python_threads)
    benchmark.teardown(python_threads)
    assert len(callers) == 12
    assert len(set(callers)) == python_threads


def test_python_threads_prints_a_table(monkeypatch, capsys):
    monkeypatch.setattr(load("benchmarks.python_threads"), "CALLS", 32)
    load("python_threads").main(["--turns", "1"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[2] == "| threading layer | 16 Python threads | 1 Python thread | 16 / 1 |"
    assert re.fullmatch(r"\| .+ \| [\d.e-]+ \| [\d.e-]+ \| [\d.]+ \|", lines[4])


def test_dask_and_its_peer_select_the_same(monkeypatch):
    pytest.importorskip("dask.array")
    module = load("benchmarks.dask")
    monkeypatch.setattr(module, "CASES", {"tiny": ((6, 50), (4, 20), 5, 1)})
    results = []
    for implementation in module.TopK.params[0]:
        benchmark = module.TopK()
        benchmark.setup(implementation, "tiny")
        results.append(benchmark.time_call(implementation, "tiny"))
    ours, both, (values,) = results
    for mine, theirs in zip((*ours, ours[0]), (*both, values), strict=True):
        np.testing.assert_array_equal(mine, theirs, strict=True)


def test_onnx_models_give_the_reference_results_and_are_timed(capsys):
    module = load("onnx_backend")
    models = module.models(scale=64)
    for name, (model, inputs) in models.items():
        wanted, *others = [call()[0] for call in module.contenders(model, inputs).values()]
        for found in others:
            np.testing.assert_allclose(found.astype(np.float64), wanted, rtol=1e-5, atol=1, err_msg=name)
    module.main(["--turns", "1", "--scale", "64"])
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in lines] == [name.partition(":")[0] for name in models]
    assert re.match(r"TopK: 10 of 16 rows of 160: reference [\d.e+-]+ ms \([\d.e+-]+\), dmlcpu ", lines[0])


def test_compare_leaves_out_contenders_that_cannot_do_a_case(capsys):
    arguments = ["--cases", "on 2000 rows", "--turns", "1", "--implementations", "dmlcpu", "dmlcpu out"]
    load("compare").main(["scatter_nd", *arguments])
    out, err = capsys.readouterr()
    assert out.splitlines()[-2].endswith("| - |")
    assert err.endswith(": no dmlcpu out: in place, out is x\n")


def test_compare_refuses_unknown_tables(capsys):
    with pytest.raises(SystemExit):
        load("compare").main(["topk"])
    assert "no table topk; there are top_k, top_k_types, " in capsys.readouterr().err


def test_compare_refuses_unknown_regimes(capsys):
    with pytest.raises(SystemExit):
        compare("--regime", "steady", "hurried")
    assert "invalid choice: 'hurried'" in capsys.readouterr().err


def test_asv_finds_the_benchmarks():
    """The paths in asv.conf.json exist."""
    json5 = pytest.importorskip("json5")
    settings = json5.loads((ASV_BENCH / "asv.conf.json").read_text("utf-8"))
    assert (ASV_BENCH / settings["benchmark_dir"] / "__init__.py").is_file()
    assert (ASV_BENCH / settings["repo"] / "pyproject.toml").is_file()
