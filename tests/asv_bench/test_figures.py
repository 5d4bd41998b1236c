"""The comparison as data: cells, the figures and charts that are made of them, and the check that texts have them."""

import re
import xml.etree.ElementTree as ET

import pytest
from asv_files import ASV_BENCH, load

cells, figures, formats, selections = load("cells"), load("figures"), load("formats"), load("selections")
machine_page = load("machine_page")
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


def test_a_ratio_is_the_quotient_of_the_medians_that_tables_show():
    found = cell(samples={"dmlcpu": [1.0004e-3, 1.0004e-3, 9e-3], "numpy": [1.5e-3, 2.9996e-3, 2.9996e-3]})
    assert [figures.number(found.median(name) * 1e3) for name in ("dmlcpu", "numpy")] == ["1.00", "3.00"]
    assert found.ratio("numpy") == pytest.approx(3.0, rel=1e-12)
    assert found.ratio("torch") is None


def test_a_wrong_answer_has_no_figure():
    wrong = cell(wrong={"torch": "all elements differ"})
    assert wrong.median("torch") is None
    assert wrong.ratio("torch") is None
    assert machine_page.shown(wrong, "torch") == "wrong"
    assert "torch" not in load("charts").times(wrong)


def test_a_contender_that_was_not_there_has_no_figure():
    assert machine_page.shown(cell(), "onnxruntime") == "n/a"


def test_losses_are_marked():
    assert machine_page.shown(cell(), "torch") == "0.500 **(0.50x)**"
    assert machine_page.shown(cell(), "numpy") == "4.00 (4.0x)"


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.01234, "0.0123"), (1.5, "1.50"), (9.996, "10.0"), (12.34, "12.3"), (123.4, "123"), (12345.6, "12,300")],
)
def test_figures_have_three_digits(value, text):
    assert formats.number(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(0.0934, "0.093x"), (0.998, "1.0x"), (3.79, "3.8x"), (46.4, "46x"), (1234.5, "1,234x")]
)
def test_ratios_have_two_digits(value, text):
    assert formats.ratio(value) == text


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
    spoken = {"least": selections.Ratio([row], ("numpy", "torch")), "ours": selections.Time(row)}
    chosen = {
        "some": selections.Selection([row], ("dmlcpu", "numpy"), ("numpy",)),
        "words": selections.Sentence("``top_k``: {least}, {ours} microseconds.", spoken),
        "medians": selections.Overview(selections.MACHINE),
    }
    monkeypatch.setattr(figures, "SELECTIONS", chosen)
    (tmp_path / "README.md").write_text("a\n<!-- figures: some -->\n<!-- figures: end -->\nb\n", "utf-8")
    (tmp_path / "docs" / "page.rst").write_text(".. figures: some\n.. figures: end\n", "utf-8")
    return tmp_path


@pytest.fixture
def undrawn(folder, monkeypatch):
    """The documentation without its charts, which would be drawn for two seconds."""
    monkeypatch.setattr(load("charts"), "of", lambda data: [])
    return folder


def test_figures_are_written_and_checked(folder, capsys):
    assert figures.main(check=True) == 1
    assert "README.md, as wanted" in capsys.readouterr().out
    assert figures.main() == 0
    assert figures.main(check=True) == 0
    assert (folder / "README.md").read_text("utf-8") == (
        "a\n"
        "<!-- figures: some -->\n"
        "| Call | dmlcpu | NumPy 2.4 | NumPy 2.4 / dmlcpu |\n"
        "| --- | --- | --- | --- |\n"
        "| ten of each row | 1.00 | 4.00 | 4.0x |\n"
        "\n"
        "a processor, 2 threads, 2026-01-02: milliseconds, median of alternating runs.\n"
        "<!-- figures: end -->\n"
        "b\n"
    )
    assert "   * - ten of each row\n     - 1.00\n" in (folder / "docs" / "page.rst").read_text("utf-8")


@pytest.mark.parametrize(("name", "quote"), [("README.md", "`"), ("docs/page.rst", "``")])
def test_figures_of_sentences_are_written(undrawn, name, quote):
    marks = ("<!-- ", " -->") if name == "README.md" else (".. ", "")
    (undrawn / name).write_text("\n".join(f"{marks[0]}figures: {each}{marks[1]}" for each in ("words", "end")), "utf-8")
    figures.main()
    assert (
        f"{quote}top_k{quote}: 0.50x to 4.0x, 1,000 microseconds." in (undrawn / name).read_text("utf-8").splitlines()
    )


def test_medians_are_those_of_ratios_with_a_link_to_the_calls(undrawn):
    (undrawn / "docs" / "page.rst").write_text(".. figures: medians\n.. figures: end\n", "utf-8")
    figures.main()
    text, link = (undrawn / "docs" / "page.rst").read_text("utf-8"), f"{selections.MACHINE}-top-k"
    row = [f"`top_k <comparison/{selections.MACHINE}.rst#{link}>`__", "4.0x", "n/a", "0.50x", "0.50x", "1 of 1"]
    assert "   * - " + "\n     - ".join(row) in text
    (page,) = (undrawn / "docs").glob("comparison/*.rst")
    assert f".. _{link}:\n\ntop_k\n-----\n\n.. chart:: " in page.read_text("utf-8")


WORDS = ("3.8x", "2.3 times as long", "twice as fast", "three times as long", "half as long", "40 % longer")
PARTS = ("0.8 of the time", "3 %\n     of the compile time", "a third of NumPy's time", "a tenth slower")


@pytest.mark.parametrize("page", ["CHANGELOG.md", "docs/page_of_x.rst", "docs/operators/x_how_it_works.rst"])
@pytest.mark.parametrize("words", [*WORDS, *PARTS])
def test_a_ratio_without_data_and_day_is_loose(folder, page, words):
    text = f"A\n\n.. list-table:: A\n\n   * - takes {words}\n"
    (folder / page).parent.mkdir(exist_ok=True)
    (folder / page).write_text(text, "utf-8")
    assert [(path, line) for path, line, _ in figures.loose()] == [(folder / page, 5)]
    (folder / page).write_text(text.replace(":: A", ":: A processor, 2026-01-02"), "utf-8")
    assert list(figures.loose()) == []


@pytest.mark.parametrize("words", ["128x768", "2 x 8", "255 times 255", "two times", "half of N", "by a third"])
def test_sizes_and_products_are_no_ratios(folder, words):
    (folder / "docs" / "page_of_x.rst").write_text(words, "utf-8")
    assert list(figures.loose()) == []


@pytest.mark.parametrize("made", figures.MADE)
def test_pages_that_programs_write_are_not_examined(folder, made):
    (folder / "docs" / made).mkdir()
    (folder / "docs" / made / "page_of_x.rst").write_text("3.8x", "utf-8")
    assert list(figures.loose()) == []


def test_a_loose_ratio_fails_the_check(undrawn, capsys):
    figures.main()
    (undrawn / "docs" / "page_of_x.rst").write_text("takes 3.8x as long", "utf-8")
    assert figures.main(check=True) == 1
    assert "docs/page_of_x.rst:1: 'takes 3.8x as long' is neither in a block" in capsys.readouterr().out


@pytest.mark.parametrize("measured", ["On 2026-01-02 it took 3.8x as long:\n1,024 of 4.", "57 ms for 4,\n1.5 GB/s"])
def test_one_other_digit_in_a_measured_paragraph_fails_the_check(undrawn, capsys, measured):
    page, text = undrawn / "docs" / "page_of_x.rst", f"{measured}\n\nIn 2.\n"
    page.write_text(text, "utf-8")
    figures.main()
    for place, digit in enumerate(text[: text.index("In")]):
        if digit.isdigit():
            page.write_text(text[:place] + str((int(digit) + 1) % 10) + text[place + 1 :], "utf-8")
            assert figures.main(check=True) == 1
            assert "--- asv_bench/dated.json" in capsys.readouterr().out
    page.write_text(text.replace("In 2", "In 3"), "utf-8")
    assert figures.main(check=True) == 0


def test_one_wrong_digit_fails_the_check(undrawn, capsys):
    figures.main()
    for path in (undrawn / "README.md", undrawn / "docs" / "page.rst", *(undrawn / "docs").glob("comparison/*.rst")):
        text = path.read_text("utf-8")
        path.write_text(text.replace("4.0", "4.1", 1), "utf-8")
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
    assert title.startswith("a processor, 2 threads, 2026-01-02: calls a second, and the 99th percentile")
    assert head[1:3] == ["dmlcpu: calls a second", "99th percentile"]
    assert [row[:2] for row in rows] == [["4 Python threads: top_k", "2,000"], ["16 Python threads: top_k", "4,000"]]
    assert rows[0][3:] == ["n/a", "n/a"]


def test_every_case_of_a_regime_may_be_chosen(monkeypatch):
    chosen = selections.Selection(selections.EVERY, ("dmlcpu",), ("numpy",), regime="oversubscribed")
    _, _, rows = figures.selected("x", chosen, [cell(regime="oversubscribed")])
    assert rows == [["top_k: 1000x10000 k 10 float32", "1.00", "4.0x"]]


def test_unknown_figures_are_refused(folder):
    (folder / "README.md").write_text("<!-- figures: others -->\n<!-- figures: end -->\n", "utf-8")
    with pytest.raises(figures.UnknownFiguresError, match=r"README.md: no figures are named others; allowed: some"):
        figures.main(check=True)


def test_figures_of_cells_that_are_not_saved_are_refused(folder, monkeypatch):
    monkeypatch.setattr(cells, "load", lambda: [cell(case="another")])
    with pytest.raises(figures.UnknownFiguresError, match=r"figures some: these cells are not saved: .*ten of each"):
        figures.main(check=True)


def test_the_repositorys_own_figures_are_those_of_the_data(capsys):
    assert figures.main(check=True) == 0, capsys.readouterr().out


@pytest.fixture(scope="module")
def data():
    return cells.load()


@pytest.mark.parametrize("name", selections.SENTENCES)
def test_one_other_digit_in_a_sentence_fails_the_check(name, data, tmp_path, monkeypatch, capsys):
    root = figures.ROOT
    pages = [root / "README.md", *(root / "docs").glob("*.rst")]
    pages = {path: text for path in pages if f"figures: {name}" in (text := path.read_text("utf-8"))}
    assert pages
    (tmp_path / "docs").mkdir()
    (tmp_path / "README.md").touch()
    for module, attribute, value in (
        (figures, "ROOT", tmp_path),
        (figures, "DOCS", tmp_path / "docs"),
        (cells, "load", lambda: data),
        (machine_page, "pages", lambda data: {}),
        (load("charts"), "of", lambda data: []),
    ):
        monkeypatch.setattr(module, attribute, value)
    for path, text in pages.items():
        copy = tmp_path / path.relative_to(root)
        copy.write_text(text, "utf-8")
        figures.main()  # which writes only the numbers of dated paragraphs
        assert copy.read_text("utf-8") == text
        (block,) = [each for each in figures.BLOCKS[path.suffix].finditer(text) if each["name"] == name]
        places = [place for place in range(*block.span("text")) if text[place].isdigit()]
        assert places
        for place in places:
            other = str((int(text[place]) + 1) % 10)
            copy.write_text(text[:place] + other + text[place + 1 :], "utf-8")
            assert figures.main(check=True) == 1
            assert f"--- {path.relative_to(root)}" in capsys.readouterr().out
        copy.write_text("", "utf-8")


def test_every_table_has_a_title():
    assert set(load("benchmarks.common").TABLES) <= set(selections.TITLES)
    assert set(load("interop").TABLES) <= set(selections.TITLES)
    assert (ASV_BENCH / "comparisons" / selections.MACHINE).is_dir()
