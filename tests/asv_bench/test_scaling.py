"""Scaling: what plans do with many threads, in counts; and the page of what is computed from them."""

import itertools
import math

import numpy as np
import pytest
from asv_files import load

from dmlcpu.runtime.threads import Budget

scaling, items, model, plans = [load(name) for name in ("scaling", "scaling_items", "scaling_model", "scaling_plans")]
MANY = 64
MOST_UNEVEN = 1.15
OF_UPDATES = [name for name, item in items.ITEMS.items() if item.operator == "scatter_nd"]


def planned(item, threads):
    call = item.call()
    return call, call.plan(Budget(threads))


def test_the_workspace_of_one_long_sequence_stays_small_with_many_threads():
    _, plan = planned(items.ITEMS["top_k 1 x 100,000,000, k 50"], MANY)
    assert plan.workspace_bytes <= 64 << 20
    assert plans.stages_of(plan)[0].threads == MANY


@pytest.mark.parametrize("is_packed", [True, False])
@pytest.mark.parametrize("size", [1_024, 2_048])
def test_the_rows_of_square_products_are_packed_seldom(size, is_packed):
    for threads in scaling.THREADS[1:]:  # one thread packs rows of 4 MiB for each block of columns
        _, plan = planned(items.product(size, size, size, is_packed), threads)
        assert plans.packs(plan)[0] <= math.ceil(math.sqrt(threads)) * (1 if is_packed else 2), threads


@pytest.mark.parametrize("name", [name for name in items.ITEMS if name not in OF_UPDATES])
def test_shares_are_even_by_what_the_plan_estimates(name):
    _, plan = planned(items.ITEMS[name], MANY)
    assert max(map(plans.imbalance, plans.stages_of(plan))) <= MOST_UNEVEN


@pytest.mark.parametrize("name", OF_UPDATES)
def test_shares_of_updates_that_are_spread_evenly_are_even(name):
    call = items.ITEMS[name].call(items.UNIFORM)
    plan = call.plan(Budget(MANY))
    stage = model.updates_of_shares(call, call.runner(plan), plan)
    assert sum(stage.pieces) in (1, len(call.requested[1][1]))
    assert plans.imbalance(stage) <= MOST_UNEVEN


@pytest.mark.parametrize("name", list(items.ITEMS))
def test_threads_are_used_as_allowed(name):
    for threads in scaling.THREADS:
        found = plans.counts(*planned(items.ITEMS[name], threads))
        assert found["threads"] <= threads
        assert found["threads"] <= found["pieces"]
        assert found["depth"] <= 8
        assert found["imbalance"] >= 1


@pytest.mark.parametrize("item", [items.product(96, 64, 96), items.top_k(64, 500, 3), items.scatter(9_000, 99)])
def test_pieces_that_run_alone_do_the_whole_call(item):
    call, other = item.call(items.UNIFORM), item.call(items.UNIFORM)
    several, wanted = call.plan(Budget(3, grain=1)), other.runner(other.plan(Budget(1)))
    run = call.runner(several)
    runs = model.run_alone(run, several)
    planned = [len(stage.pieces) for stage in plans.stages_of(several)]
    assert [len(stage.pieces) for stage in runs.stages] == planned
    wanted()
    assert [each.tobytes() for each in run.outputs] == [each.tobytes() for each in wanted.outputs]


def test_the_thread_that_is_free_first_takes_the_next_piece():
    assert plans.ends([3.0, 1.0, 1.0, 1.0], [0.0, 0.0]) == [3.0, 1.0, 2.0, 3.0]
    assert plans.ends([1.0, 1.0], [0.0, 5.0]) == [1.0, 2.0]
    assert plans.imbalance(plans.Stage("call", 4, 2, [3.0, 1.0, 1.0, 1.0])) == 1.0
    assert plans.imbalance(plans.Stage("call", 3, 2, [1.0, 1.0, 1.0])) == pytest.approx(4 / 3)


def test_helpers_rise_one_after_the_other():
    found = model.rises(127, 50_000)
    assert [plans.depth(helpers) for helpers in (0, 1, 9, 10, 73, 74, 127)] == [0, 1, 2, 3, 3, 4, 4]
    assert min(found) > 50_000
    assert max(found) < 4 * 50_000 + 3 * 8 * model.WAKE + model.WAKE + 127 * model.POST
    wakes = [round((each - 127 * model.POST - model.WAKE - 50_000) / model.WAKE) for each in found]
    assert wakes[0] == 8  # the first helper begins once it has woken eight
    assert model.rises(1, 50_000) == [model.POST + model.WAKE + 50_000]


def test_estimates_are_of_pieces_and_of_waking_and_of_memory():
    runs = model.Runs([plans.Stage("call", 4, 2, [1e-3] * 4)], 1e-4)
    awake, asleep = model.estimate(runs, 0), model.estimate(runs, 0, 500_000)
    assert 2.1e-3 < awake < 2.11e-3
    assert awake < asleep < 4.1e-3
    assert model.estimate(runs, 0, 10_000_000) == pytest.approx(4.1e-3, rel=0.01)  # nobody waits for a late helper
    assert model.estimate(runs, int(model.BANDWIDTH)) == pytest.approx(1, rel=0.01)


def test_indices_by_zipfs_law_are_uneven_and_in_range():
    found = items.places(10_000, 1_000, items.ZIPF)
    assert found.shape == (10_000, 1)
    assert (found >= 0).all()
    assert (found < 1_000).all()
    assert np.bincount(found.ravel()).max() > 1_000


def test_figures_are_kept_and_the_page_is_made_of_them(tmp_path, monkeypatch, capsys):
    page = load("scaling_page")
    small = {item.name: item for item in (items.scatter(5_000, 300), items.product(20, 64, 64))}
    small["planned"] = items.top_k(2, 300, 3, is_run=False)
    for name, value in (("ITEMS", small), ("FOLDER", tmp_path / "kept"), ("REPEATS", 1), ("TURNS", (1, 1))):
        monkeypatch.setattr(scaling, name, value)
    monkeypatch.setattr(scaling, "waking_here", lambda: 50_000)
    monkeypatch.setattr(page, "DOCS", tmp_path)
    monkeypatch.setattr(page, "PAGE", tmp_path / "scaling.rst")
    page.PAGE.write_text("before\n\n.. scaling: begin\n.. scaling: end\n\nafter\n", "utf-8")
    monkeypatch.setattr(load("figures"), "ROOT", tmp_path)
    scaling.main(["--save"])
    assert scaling.main(["--check"]) == 1
    assert scaling.main(["--render"]) == 0
    assert scaling.main(["--check"]) == 0
    text = page.PAGE.read_text("utf-8")
    assert text.startswith("before\n\n.. scaling: begin\n\n")
    assert text.endswith("\n.. scaling: end\n\nafter\n")
    titles = [line.removeprefix(".. list-table:: ") for line in text.splitlines() if line.startswith(".. list-table")]
    scatter, *others = small
    assert titles[1:] == [f"{scatter}, {kind}" for kind in (items.UNIFORM, items.ZIPF)] + others
    page.PAGE.write_text(text.replace("1.00", "1.01", 1), "utf-8")
    capsys.readouterr()
    assert scaling.main(["--check"]) == 1
    assert "run: python -m asv_bench.scaling --render" in capsys.readouterr().out


def test_the_repositorys_page_is_made_of_the_kept_figures(capsys):
    assert scaling.main(["--check"]) == 0, capsys.readouterr().out


def test_plans_are_printed_without_running_them(capsys, monkeypatch):
    monkeypatch.setattr(scaling, "THREADS", [1, 4])
    scaling.main(["--calls", "100,000,000"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "top_k 1 x 100,000,000, k 50"
    assert [line.split()[0] for line in lines[1:]] == ["1", "4"]


def test_threads_are_doubled_up_to_256():
    assert all(after == 2 * before for before, after in itertools.pairwise(scaling.THREADS))
    assert scaling.THREADS[-1] == 256
