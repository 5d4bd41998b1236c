"""The comparison as data: cells, the figures and charts that are made of them, and the check that texts have them."""

import re
import xml.etree.ElementTree as ET

import pytest
from asv_files import ASV_BENCH, load

cells, figures, selections = load("cells"), load("figures"), load("selections")
MACHINE = {"name": selections.MACHINE, "cpu": "a processor", "cores": 2, "memory_gib": 8, "features": ["generic"]}


def cell(**fields):
    """Return a cell with plausible fields."""
    given = {
        "table": "top_k",
        "case": "1000x10000 k 10 float32",
        "regime": "steady",
        "threads": 2,
        "turns": 3,
        "date": "2026-01-02",
        "commit": "0123456789",
        "machine": MACHINE,
        "versions": {"numpy": "2.4.6", "torch": "2.13.0+cpu"},
        "samples": {"dmlcpu": [1e-3, 2e-3, 1e-3], "numpy": [4e-3, 8e-3, 4e-3], "torch": [5e-4, 1e-3, 5e-4]},
        "work": {"bytes": 1e6},
        "limit": {"bytes": 2e9},
    }
    return cells.Cell(**{**given, **fields})


def test_a_cell_is_read_as_it_was_saved(tmp_path):
    saved = cell(wrong={"torch": "1 of 2 elements differ"})
    saved.save(tmp_path)
    assert saved.path(tmp_path).name == "1000x10000-k-10-float32.steady.json"
    assert cells.load(tmp_path) == [saved]


def test_names_of_files_tell_all_cases_apart():
    for table, cases in load("benchmarks.common").TABLES.items():
        assert len({cells.slug(case) for case in cases}) == len(cases), table


def test_a_ratio_is_that_of_turns_and_not_of_medians():
    """The machine was slower in some turns of one, and in others of the other."""
    uneven = cell(samples={"dmlcpu": [1.0, 2.0, 2.0, 1.0, 1.0], "numpy": [3.0, 6.0, 6.0, 6.0, 6.0]})
    assert uneven.ratio("numpy") == 3.0
    assert uneven.median("numpy") / uneven.median("dmlcpu") == 6.0
    assert uneven.ratio("torch") is None


def test_a_wrong_answer_has_no_figure():
    wrong = cell(wrong={"torch": "all elements differ"})
    assert wrong.median("torch") is None
    assert wrong.ratio("torch") is None
    assert figures.shown(wrong, "torch") == "wrong"
    assert "torch" not in load("charts").times(wrong)


def test_a_contender_that_was_not_there_has_no_figure():
    assert figures.shown(cell(), "onnxruntime") == "n/a"


def test_losses_are_marked():
    assert figures.shown(cell(), "torch") == "0.500 **(0.500)**"
    assert figures.shown(cell(), "numpy") == "4.00 (4.00)"


@pytest.mark.parametrize(
    ("value", "text"), [(0.01234, "0.0123"), (1.5, "1.50"), (12.34, "12.3"), (123.4, "123"), (12345.6, "12,300")]
)
def test_figures_have_three_digits(value, text):
    assert figures.number(value) == text


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A documentation of one page and a README, whose figures are those of one cell."""
    (tmp_path / "docs").mkdir()
    for module in (figures, load("charts")):
        monkeypatch.setattr(module, "DOCS", tmp_path / "docs")
    monkeypatch.setattr(load("charts"), "CHARTS", tmp_path / "docs" / "charts")
    monkeypatch.setattr(figures, "ROOT", tmp_path)
    monkeypatch.setattr(cells, "load", lambda: [cell()])
    row = selections.Row("ten of each row", "top_k", "1000x10000 k 10 float32")
    chosen = {"some": selections.Selection([row], ("numpy", "dmlcpu"), ("numpy",))}
    monkeypatch.setattr(figures, "SELECTIONS", chosen)
    (tmp_path / "README.md").write_text("a\n<!-- figures: some -->\n<!-- figures: end -->\nb\n", "utf-8")
    (tmp_path / "docs" / "page.rst").write_text(".. figures: some\n.. figures: end\n", "utf-8")
    return tmp_path


def test_figures_are_written_and_checked(folder, capsys):
    assert figures.main(check=True) == 1
    assert "README.md, of the data" in capsys.readouterr().out
    assert figures.main() == 0
    assert figures.main(check=True) == 0
    assert (folder / "README.md").read_text("utf-8") == (
        "a\n"
        "<!-- figures: some -->\n"
        "| Call | NumPy 2.4, milliseconds | dmlcpu, milliseconds | NumPy 2.4 / dmlcpu |\n"
        "| --- | --- | --- | --- |\n"
        "| ten of each row | 4.00 | 1.00 | 4.00 |\n"
        "\n"
        "a processor, 2 threads, 2026-01-02; medians of turns.\n"
        "<!-- figures: end -->\n"
        "b\n"
    )
    assert "   * - ten of each row\n     - 4.00\n" in (folder / "docs" / "page.rst").read_text("utf-8")


def test_one_wrong_digit_fails_the_check(folder, capsys):
    figures.main()
    for path in (folder / "README.md", folder / "docs" / "page.rst", *(folder / "docs").glob("comparison/*.rst")):
        text = path.read_text("utf-8")
        path.write_text(text.replace("4.00", "4.01", 1), "utf-8")
        capsys.readouterr()
        assert figures.main(check=True) == 1
        assert path.name in capsys.readouterr().out
        path.write_text(text, "utf-8")
    assert figures.main(check=True) == 0


def test_a_chart_of_other_data_fails_the_check(folder, monkeypatch, capsys):
    figures.main()
    (chart,) = [each for each in load("charts").of([cell()]) if each.path.stem == "top_k"]
    chart.path.unlink()
    assert figures.main(check=True) == 1
    assert "top_k.svg is not drawn from the data of today" in capsys.readouterr().out


def test_charts_are_the_same_for_the_same_data(folder):
    (first, *_) = load("charts").of([cell()])
    first.draw()
    before = first.path.read_bytes()
    first.draw()
    assert first.path.read_bytes() == before
    for path, *_ in first.forms:
        assert ET.fromstring(path.read_text("utf-8")).tag.endswith("svg")
        assert not re.search("<dc:date>", path.read_text("utf-8"))


def test_calls_a_second_are_those_of_all_callers(monkeypatch):
    four = cell(table="callers", regime="callers", case="4 Python threads: top_k", samples={"dmlcpu": [1e-3, 3e-3]})
    eight = cell(table="callers", regime="callers", case="16 Python threads: top_k", samples={"dmlcpu": [4e-3, 4e-3]})
    title, head, rows = figures.throughput("x", selections.Throughput(("dmlcpu", "torch")), [eight, four])
    assert title == "a processor, 2 threads, 2026-01-02; of all calls"
    assert head[1:3] == ["dmlcpu: calls a second", "99th percentile, milliseconds"]
    assert [row[:2] for row in rows] == [["4 Python threads: top_k", "2,000"], ["16 Python threads: top_k", "4,000"]]
    assert rows[0][3:] == ["n/a", "n/a"]


def test_every_case_of_a_regime_may_be_chosen(monkeypatch):
    chosen = selections.Selection(selections.EVERY, ("dmlcpu",), ("numpy",), regime="oversubscribed")
    _, _, rows = figures.selected("x", chosen, [cell(regime="oversubscribed")])
    assert rows == [["top_k: 1000x10000 k 10 float32", "1.00", "4.00"]]


def test_unknown_figures_are_refused(folder):
    (folder / "README.md").write_text("<!-- figures: others -->\n<!-- figures: end -->\n", "utf-8")
    with pytest.raises(figures.UnknownFiguresError, match=r"README.md: no figures are named others; there are some"):
        figures.main(check=True)


def test_figures_of_cells_that_are_not_saved_are_refused(folder, monkeypatch):
    monkeypatch.setattr(cells, "load", lambda: [cell(case="another")])
    with pytest.raises(figures.UnknownFiguresError, match=r"figures some: these cells are not saved: .*ten of each"):
        figures.main(check=True)


def test_the_repositorys_own_figures_are_those_of_the_data(capsys):
    assert figures.main(check=True) == 0, capsys.readouterr().out


def test_every_table_has_a_title():
    assert set(load("benchmarks.common").TABLES) <= set(selections.TITLES)
    assert set(load("interop").TABLES) <= set(selections.TITLES)
    assert (ASV_BENCH / "comparisons" / selections.MACHINE).is_dir()
