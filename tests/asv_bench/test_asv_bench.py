"""The asv benchmarks: asv finds each by its name, it runs, and the timed call gives the right result."""

import contextlib
import os
import re
import select
import subprocess
import sys
import threading
from importlib import import_module
from itertools import product

import numba
import numpy as np
import pytest
from asv_files import ASV_BENCH, as_arrays, check, load

import dmlcpu
from dmlcpu.runtime import pool, threads
from dmlcpu.runtime.threads import Budget, budget

MEASURED = re.compile("(time|timeraw|track)_")
MUST_RUN = ("dmlcpu", "dmlcpu 1 thread", "numpy")


def modules():
    """Return the files of benchmarks, and that of the history."""
    names = [path.stem for path in sorted((ASV_BENCH / "benchmarks").glob("[!_]*.py"))]
    return [*(load(f"benchmarks.{name}") for name in names), load("past.calls")]


def classes():
    """Yield each benchmark with the names of its measured methods, as asv finds them."""
    for module in modules():
        for name, value in vars(module).items():
            methods = [method for method in dir(value) if MEASURED.match(method)] if isinstance(value, type) else []
            if methods:
                yield pytest.param(value, methods, id=f"{module.__name__}.{name}")


def of_cases():
    """Yield the benchmarks whose results are those of cases."""
    return [each for each in classes() if hasattr(each.values[0], "cases")]


@pytest.mark.parametrize(("benchmark", "methods"), of_cases())
def test_benchmark_runs_and_gives_the_right_result(benchmark, methods):
    ran, alone, missing = [], False, True
    for method, cell in product(methods, benchmark.params):
        instance = benchmark()
        implementation, _, case = cell.partition(": ")
        try:
            instance.setup(cell)
        except NotImplementedError as error:
            alone |= "no other library" in str(error)  # where no peer is installed
            missing &= "is not installed" in str(error)
            assert alone or implementation not in MUST_RUN
        else:
            check(implementation, instance.cases[case], getattr(instance, method)(cell))
            ran.append(cell)
        getattr(instance, "teardown", lambda cell: None)(cell)  # asv calls it in either case
    if not ran and missing:
        pytest.skip("no contender is installed")
    assert ran or alone


@pytest.mark.parametrize(("benchmark", "methods"), list(classes()))
def test_results_tell_when_a_benchmark_has_changed(benchmark, methods):
    """asv would take the hash of the source, and drop all results when a word of it changes."""
    assert benchmark.version == "1"


def test_cells_are_pairs_that_can_run():
    """asv starts a process for each, also for one that then cannot."""
    for benchmark, _ in (each.values for each in of_cases()):
        for cell in benchmark.params:
            implementation, _, case = cell.partition(": ")
            if method := load("benchmarks.peers").METHODS.get(implementation):
                reason = benchmark.cases[case].refusal(method)
                assert reason is None or "not installed" in reason


@pytest.mark.parametrize("package", ["benchmarks", "past"])
def test_imports_start_no_thread(package):
    """Benchmarks are forked from the process that has imported them all."""
    code = (
        f"import importlib, os, pkgutil, {package}\n"
        f"for each in pkgutil.walk_packages({package}.__path__, '{package}.'):\n"
        "    importlib.import_module(each.name)\n"
        "print(len(os.listdir('/proc/self/task')))\n"
    )
    if not os.path.isdir("/proc/self/task"):
        pytest.skip("only Linux lists a process's threads")
    done = subprocess.run([sys.executable, "-c", code], cwd=ASV_BENCH, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1"]


@pytest.mark.parametrize("module", [module for module in modules() if module.__name__ == "benchmarks.kernels"])
def test_kernels_are_called_within_limits(monkeypatch, module):
    benchmark, budgets = module.TopK(), []
    chosen, forced = benchmark.params[:2]
    case = benchmark.cases[chosen.partition(": ")[2]]
    monkeypatch.setattr(type(case), "dmlcpu_out", lambda case: lambda: budgets.append(budget()))
    for cell in (chosen, forced):
        benchmark.setup(cell)
    threads = dmlcpu.get_num_threads()
    assert set(budgets) == {Budget(threads), Budget(threads, kernel=forced.partition(": ")[0])}
    assert budget().kernel is None


def test_ratios_are_of_the_limit_and_of_the_best_peer(monkeypatch):
    module = load("benchmarks.ratios")
    seconds = {"dmlcpu": [2.0], "numpy": [8.0], "torch": [4.0], "limit": [0.5]}
    monkeypatch.setattr(
        module.turns, "enter", lambda _, names, __: ({name: FakeCall() for name in names if name in seconds}, {})
    )
    monkeypatch.setattr(module.turns, "take", lambda contenders, turns: {name: seconds[name] for name in contenders})
    benchmark, case = module.Ratios(), next(iter(module.CASES))
    benchmark.setup(case)
    assert benchmark.track_the_best_peer(case) == 0.5
    monkeypatch.setattr(benchmark.case.__class__, "work", lambda *_: (10, "bytes"))
    amount = load("benchmarks.limits").BYTES
    assert benchmark.track_the_limit(case) == pytest.approx(2.0 / (0.5 * 10 / amount))


class FakeCall:
    def call(self):
        return np.zeros(1)


def test_memory_at_the_peak_is_at_least_that_of_the_results():
    module = load("benchmarks.memory")
    name, case = next(iter(module.CASES.items()))
    benchmark = module.Peak()
    try:
        benchmark.setup(f"dmlcpu: {name}")
    except NotImplementedError as error:
        pytest.skip(str(error))
    results = sum(each.nbytes for each in as_arrays(case.dmlcpu()()))
    assert results / 2**20 <= benchmark.track_peak(f"dmlcpu: {name}") + 1


def test_numba_callers_give_the_operators_results(monkeypatch):
    """Only scatter_nd's is compiled, by whose kernels it takes the least time: others run in Python."""
    module = load("benchmarks.numba_callers")
    for operator, loop in module.LOOPS.items():
        if operator != "scatter_nd":
            types = [numba.typeof(each) for each in module.arguments(operator)]
            accepts = import_module(f"dmlcpu.interop.numba.{operator}")
            assert callable(getattr(accepts, f"_{operator}")(*types))  # else a function with such a call is refused
            monkeypatch.setitem(module.LOOPS, operator, loop.py_func)
        benchmark = module.Loops()
        benchmark.setup(operator)
        check("dmlcpu", load("benchmarks.common").TINY[operator], benchmark.time_1000_calls(operator))


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


def test_teardown_works_after_a_failed_setup(monkeypatch):
    """asv calls it, and reports its error as the benchmark's."""
    for name in ("onnx", "onnxruntime", "torch"):
        monkeypatch.setitem(sys.modules, name, None)
    benchmark = load("benchmarks.regimes").Crowded()
    cell = benchmark.params[0]
    with pytest.raises(NotImplementedError, match="no other library"):
        benchmark.setup(cell)
    benchmark.teardown(cell)


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


@pytest.mark.skipif(not pool.AVAILABLE, reason="this system has only Numba's threads")
def test_settings_of_many_threads_have_helpers_of_their_own():
    peers, before = load("benchmarks.peers"), (dmlcpu.get_num_threads(), threads.layer())
    for name, count in peers.TEAMS.items():
        with contextlib.suppress(KeyError), peers.settings_of(name):
            assert budget() == Budget(count)
            assert threads.layer().most == count - 1
            result = dmlcpu.top_k(np.arange(600_000.0).reshape(200, 3_000), 2)
            assert (result.indices == [2_999, 2_998]).all()
            raise KeyError
        assert (dmlcpu.get_num_threads(), threads.layer()) == before


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


def test_callers_and_their_peers_are_timed_in_turns(monkeypatch, capsys, tmp_path):
    module, script = load("benchmarks.python_threads"), load("python_threads")
    for each, name, value in (
        (script, "SHARED", 12),
        (script, "OF_CALLERS", {"tiny": [load("benchmarks.common").TINY["top_k"]]}),
        (load("cells"), "FOLDER", tmp_path),
    ):
        monkeypatch.setattr(each, name, value)
    script.main(["--callers", "2", "3", "--turns", "2", "--save"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[2] == "| Python threads and their calls | dmlcpu | dmlcpu 1 thread | torch |"
    assert [line.split(" | ")[0] for line in lines[4:]] == ["| 2 Python threads: tiny", "| 3 Python threads: tiny"]
    for cell in load("cells").load(tmp_path):
        assert (cell.table, cell.regime) == ("callers", "callers")
        assert set(cell.samples) <= set(module.CALLERS)
        assert {len(samples) for samples in cell.samples.values()} == {24}


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
    pytest.importorskip("onnx")
    module = load("benchmarks.onnx_models")
    for name, build in module.MODELS.items():
        _, *built = build(64)
        wanted, *others = [contender(*built)()[0] for contender in module.CONTENDERS.values()]
        for found in others:
            np.testing.assert_allclose(found.astype(np.float64), wanted, rtol=1e-5, atol=1, err_msg=name)
    load("onnx_backend").main(["--turns", "1", "--scale", "64"])
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in lines] == list(module.MODELS)
    assert re.match(r"TopK: 10 of 16 rows of 160: reference [\d.e+-]+ ms \([\d.e+-]+\), dmlcpu ", lines[0])


@pytest.mark.parametrize("name", ["asv.conf.json", "asv.history.conf.json"])
def test_asv_finds_the_benchmarks(name):
    """The paths in its settings exist, and both settings have the same environment."""
    settings, others = (settings_of(each) for each in (name, "asv.conf.json"))
    assert (ASV_BENCH / settings["benchmark_dir"] / "__init__.py").is_file()
    assert (ASV_BENCH / settings["repo"] / "pyproject.toml").is_file()
    assert settings["matrix"] == others["matrix"]


def settings_of(name):
    json5 = pytest.importorskip("json5")
    return json5.loads((ASV_BENCH / name).read_text("utf-8"))
