"""compare.py: its tables, and the cells that it keeps."""

import json
import re
import sys

import pytest
from asv_files import load


def compare(*arguments):
    """Run compare.py on one tiny case, two turns."""
    load("compare").main(["tiny", "--cases", "1x64 k 8", "--turns", "2", *arguments])


def test_compare_prints_a_table(capsys):
    compare("--implementations", "dmlcpu", "numpy")
    lines = capsys.readouterr().out.splitlines()
    assert lines[:6] == [
        "## tiny, steady: calls follow one another",
        "",
        "Milliseconds, median of 2 alternating runs, 2 threads; in brackets: the ratio to dmlcpu.",
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
    assert [line.split()[2].rstrip(":") for line in lines if line.startswith("## ")] == regimes
    assert "| case | dmlcpu | dmlcpu 1 thread | dmlcpu steady | paused / steady |" in lines
    results = json.loads((tmp_path / "medians.json").read_text("utf-8"))
    assert list(results) == regimes
    for regime, cases in results.items():
        (figures,) = cases.values()
        spread = [f"{name} {kind}" for name in names for kind in ("mean", "p99")]
        more = {"paused": ["dmlcpu steady"], "busy": spread}.get(regime, [])
        assert list(figures) == [*names, *more]
        assert min(figures.values()) > 0


def test_compare_shows_how_uneven_calls_are_where_threads_compete():
    samples = {"dmlcpu": [1e-3] * 98 + [5e-3, 7e-3], "torch": [2e-3] * 100}
    figures, shown = load("benchmarks.turns").figures_of(samples, "busy"), load("compare").shown
    assert shown(figures, "dmlcpu") == "1, 1.1, 5"
    assert shown(figures, "torch") == "2, 2, 2 (2.00x, 1.82x, 0.40x)"
    assert shown(figures, "numpy") == "-"


def test_uneven_turns_have_enough_calls_and_end_in_time(monkeypatch):
    turns = load("benchmarks.turns")
    for seconds, calls in ((1e-6, turns.CALLS), (turns.LONGEST / 10, 10), (10.0, turns.FEWEST)):
        clock = iter([0.0, seconds])
        monkeypatch.setattr(turns.time, "perf_counter", lambda clock=clock: next(clock))
        monkeypatch.setattr(turns.Contender, "turn", lambda contender, calls: [])
        assert turns.Contender(None, "dmlcpu", "busy").calls() == pytest.approx(calls, abs=1)


def test_crowded_turn_calls_the_other_libraries_before_each_call(monkeypatch, capsys):
    monkeypatch.setattr(load("benchmarks.turns"), "CALLS", 1)
    monkeypatch.setattr(load("benchmarks.turns"), "FEWEST", 1)
    case, peers = load("benchmarks.common").TINY["top_k"], load("benchmarks.peers")
    called = []
    monkeypatch.setattr(type(case), "refusal", lambda case, method: None)
    for name in peers.WITH_THREADS:
        monkeypatch.setattr(type(case), name, lambda case, name=name: lambda: called.append(name))
    compare("--regime", "crowded", "--implementations", "dmlcpu", "onnxruntime")
    assert "| case | dmlcpu | onnxruntime |" in capsys.readouterr().out
    first = ["dmlcpu", "onnxruntime", "torch"]
    turn = ["onnxruntime", "torch", "dmlcpu", "dmlcpu", "torch", "onnxruntime"]
    assert called == [*first, *turn, *turn, *turn]  # one turn tells how many calls the others have


def test_more_threads_than_processors_are_compared_with_as_many(capsys):
    compare("--regime", "oversubscribed", "--first", "1")
    lines = capsys.readouterr().out.splitlines()
    assert lines[4] == "| case | dmlcpu | dmlcpu 16 threads | dmlcpu 64 threads |"
    assert re.fullmatch(r"\| top_k: 1x64 k 8 float32 (\| [\d.e-]+, [\d.e-]+, [\d.e-]+ (\([^)]*\) )?){3}\|", lines[6])


def test_only_the_first_cases_of_a_table_are_timed(capsys):
    load("compare").main(["at", "--turns", "1", "--first", "2", "--implementations", "numpy"])
    assert len([line for line in capsys.readouterr().out.splitlines() if line.startswith("| add.at")]) == 2


def test_crowded_leaves_out_a_case_without_other_libraries(monkeypatch, capsys):
    for name in ("onnx", "onnxruntime", "torch"):
        monkeypatch.setitem(sys.modules, name, None)
    compare("--regime", "crowded", "--implementations", "dmlcpu")
    out, err = capsys.readouterr()
    assert out.splitlines()[-2] == "| top_k: 1x64 k 8 float32 | - |"
    assert err.endswith(": no dmlcpu: no other library with threads can do the case\n")


def test_compare_leaves_out_contenders_that_cannot_do_a_case(capsys):
    arguments = ["--cases", "on 2000 rows", "--turns", "1", "--implementations", "dmlcpu", "dmlcpu out"]
    load("compare").main(["scatter_nd", *arguments])
    out, err = capsys.readouterr()
    assert out.splitlines()[-2].endswith("| - |")
    assert err.endswith(": no dmlcpu out: in place, out is x\n")


def test_compare_refuses_unknown_tables(capsys):
    with pytest.raises(SystemExit):
        load("compare").main(["topk"])
    assert "no table topk; allowed: top_k, top_k_sizes, " in capsys.readouterr().err


def test_compare_refuses_unknown_regimes(capsys):
    with pytest.raises(SystemExit):
        compare("--regime", "steady", "hurried")
    assert "invalid choice: 'hurried'" in capsys.readouterr().err


def test_saved_cells_have_what_is_needed_to_believe_them(tmp_path, monkeypatch):
    cells = load("cells")
    monkeypatch.setattr(cells, "FOLDER", tmp_path)
    compare("--implementations", "dmlcpu", "dmlcpu out", "numpy", "--regime", "steady", "paused", "--save")
    paused, steady = cells.load(tmp_path)
    assert (steady.table, steady.case, steady.regime) == ("tiny", "top_k: 1x64 k 8 float32", "steady")
    assert list(steady.samples) == ["dmlcpu", "dmlcpu out", "numpy"]
    assert {len(samples) for samples in steady.samples.values()} == {2}
    assert min(min(samples) for samples in steady.samples.values()) > 0
    assert list(paused.samples) == ["dmlcpu", "dmlcpu out", "numpy", "dmlcpu steady"]
    assert steady.wrong == {}
    assert steady.limit["bytes"] > 0
    assert steady.work["bytes"] > 12 * 4  # of the shrunk case
    assert set(steady.machine) == {"name", "cpu", "cores", "memory_gib", "features"}
    assert {"python", "dmlcpu", "numba", "numpy"} <= set(steady.versions)
    assert re.fullmatch(r"[0-9a-f]{10}\+?", steady.commit)
    assert steady.path(tmp_path).is_file()


def test_a_wrong_result_is_told(monkeypatch):
    peers, case = load("benchmarks.peers"), load("benchmarks.common").TINY["top_k"]
    truth = peers.arrays(case.dmlcpu()())[0]
    assert peers.fault(case, "numpy", truth) is None
    monkeypatch.setattr(type(case), "numpy", lambda case: lambda: (truth + 1, None))
    assert peers.fault(case, "numpy", truth) == "8 of 8 elements differ"
    monkeypatch.setattr(type(case), "numpy", lambda case: lambda: (truth[:, :3], None))
    assert peers.fault(case, "numpy", truth) == "the shape is (1, 3) instead of (1, 8)"
