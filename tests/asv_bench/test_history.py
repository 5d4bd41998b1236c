"""The history: results of asv, the steps in them, and the drawings."""

import json

import pytest
from asv_files import ASV_BENCH, load

pytest.importorskip("asv")
history = load("history")


@pytest.fixture
def folder(tmp_path):
    """The results of a machine for six commits: dmlcpu's time is halved at the fourth, and a cell is new there."""
    cells = ["'dmlcpu: a case'", "'torch: a case'", "'dmlcpu: new'"]
    for number in range(6):
        result = [0.1 if number >= 3 else 0.2, 0.5, 0.3 if number >= 3 else float("nan")]
        (tmp_path / f"{number}-env-x.json").write_text(
            json.dumps(
                {
                    "commit_hash": f"{number}" * 40,
                    "date": number,
                    "params": {"cpu": "a processor", "numba": "1", "numpy": "2", "onnxruntime": "3", "torch": "4"},
                    "result_columns": ["result", "params"],
                    "results": {"calls.TopK.time_call": [result, [cells]]},
                }
            ),
            "utf-8",
        )
    return tmp_path


def test_results_are_lines_in_the_order_of_commits(folder):
    commits, params, series = history.load(folder)
    assert commits == [f"{number}" * 7 for number in range(6)]
    assert params["torch"] == "4"
    assert series["TopK"]["dmlcpu: a case"] == [0.2, 0.2, 0.2, 0.1, 0.1, 0.1]
    assert series["TopK"]["dmlcpu: new"] == [None, None, None, 0.3, 0.3, 0.3]


def test_a_step_is_found_at_its_commit(folder):
    commits, _, series = history.load(folder)
    (step,) = history.steps("a case", commits, series["TopK"]["dmlcpu: a case"])
    assert (step.commit, step.factor) == ("3333333", pytest.approx(0.5))
    assert history.steps("a case", commits, series["TopK"]["torch: a case"]) == []
    assert history.steps("new", commits, series["TopK"]["dmlcpu: new"]) == []


def test_a_page_has_a_chart_and_the_steps(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(history, "DOCS", tmp_path)
    monkeypatch.setattr(history, "message", lambda commit: f"what {commit} did")
    (chart,), text = history.page(folder)
    assert "   * - a case\n     - 3333333\n     - 0.50\n     - what 3333333 did\n" in text
    assert not chart.is_drawn()
    chart.draw()
    assert chart.is_drawn()
    assert "3333333" in chart.path.read_text("utf-8")


def test_the_repositorys_history_is_drawn(capsys):
    assert history.main(["--check"]) == 0, capsys.readouterr().out


def test_every_kept_result_has_the_cells_of_today():
    """asv numbers them: a list that changed would mix results up."""
    today = {name: [repr(cell) for cell in getattr(load("past.calls"), name).params] for name in history.TITLES}
    for path in (ASV_BENCH / "results").glob("*/*-env-*.json"):
        results = json.loads(path.read_text("utf-8"))["results"]
        for name, (_, (cells,), *_) in results.items():
            assert cells == today[name.split(".")[1]], path
