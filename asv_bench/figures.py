"""Write the figures of the saved cells into the documentation, or check that it has them.

A block of a text between these two lines is made from the data (in Markdown, HTML comments with the same words):

    .. figures: NAME
    .. figures: end

selections.py says what a name stands for. Each machine also has a page of all its cells, with charts. A ratio of times
is either in such a block or in a paragraph that names the day of the measurement. dated.json has the numbers of these
paragraphs and of those with a time, so that a changed digit shows in the difference of a second file.
"""

import difflib
import json
import re
import statistics
import sys
import textwrap
from pathlib import Path

import cells
import charts
import machine_page
from cells import p99
from formats import NONE, circumstances, markdown, named, number, ratio, restructured
from selections import EVERY, SELECTIONS, Overview, Row, Sentence, Throughput, Time

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
BLOCKS = {
    ".rst": re.compile(
        r"(?ms)^(?P<open>\.\. figures: (?P<name>(?!end$)\S+)\n)(?P<text>.*?)^(?P<close>\.\. figures: end)$"
    ),
    ".md": re.compile(
        r"(?ms)^(?P<open><!-- figures: (?P<name>\S+) -->\n)(?P<text>.*?)^(?P<close><!-- figures: end -->)$"
    ),
}
MADE = ("_build", "comparison", "history")  # folders of docs whose pages programs write
PARAGRAPH = re.compile(r"(?s)\S.*?(?=\n\n+\S|\Z)")  # with what is indented below it
PART = r"(?:\d ?%|\d\.\d+|\b(?:half|thirds?|quarters?|fifth|sixth|seventh|eighth|tenth))"
RATIO = re.compile(
    rf"\d(?:x| times)\b(?! *\d)|\b(?:twice|half|(?<!many )times)\s+as\s+(?:fast|long)\b"
    rf"|{PART}\s+(?:of(?:\s+[\w']+){{1,3}}\s+(?:time|speed)|longer|slower|faster)\b"
)
DAY = re.compile(r"\b20\d\d-\d\d-\d\d\b")
TIME = re.compile(r"\d (?:us|ms|s|seconds?|minutes?)\b|\d [GM]B/s")
NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
WIDTH = 130  # of a line of a sentence


class UnknownFiguresError(ValueError):
    """A text asks for figures that do not exist."""


def main(check=False):
    """Write all figures, or report those that differ from the data; return the exit code."""
    data = cells.load()
    wanted = {**texts(data), **machine_page.pages(data), **numbers_of_dated()}
    stale = {path: text for path, text in wanted.items() if not path.is_file() or path.read_text("utf-8") != text}
    old_charts = [chart for chart in charts.of(data) if not chart.is_drawn()]
    if check:
        without_data = list(loose())
        for path, text in stale.items():
            print(difference(path, text))
        for chart in old_charts:
            print(f"{chart.path.relative_to(ROOT)} is not drawn from the data of today")
        for path, line, words in without_data:
            print(f"{path.relative_to(ROOT)}:{line}: '{words}' is neither in a block of figures nor has it a day")
        if stale or old_charts:
            print("run: python asv_bench/compare.py --render, if new numbers in dated.json are meant")
        return 1 if stale or old_charts or without_data else 0
    for path, text in stale.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    for chart in old_charts:
        chart.draw()
    print(f"{len(stale)} texts and {len(old_charts)} charts written")
    return 0


def difference(path, text):
    """Return the lines of a file that differ from those made from the data."""
    before = path.read_text("utf-8").splitlines() if path.is_file() else []
    name = path.relative_to(ROOT).as_posix()
    return "\n".join(difflib.unified_diff(before, text.splitlines(), name, f"{name}, as wanted", lineterm="", n=0))


def loose():
    """Yield path, line and words of each ratio that has neither data nor the day of its measurement."""
    for path, text, paragraph in paragraphs():
        for match in RATIO.finditer(paragraph[0]) if not DAY.search(paragraph[0]) else ():
            place = paragraph.start() + match.start()
            yield path, text.count("\n", 0, place) + 1, text[max(0, place - 20) : place + 20].replace("\n", " ")


def numbers_of_dated():
    """Return the file of the numbers in paragraphs that name a day or a time, and its text."""
    numbers = {}
    for path, _, paragraph in paragraphs():
        if DAY.search(paragraph[0]) or TIME.search(paragraph[0]):
            page = path.relative_to(ROOT).as_posix()
            numbers.setdefault(page, []).append(" ".join(NUMBER.findall(paragraph[0])))
    return {ROOT / "asv_bench" / "dated.json": json.dumps(numbers, indent=1) + "\n"}


def paragraphs():
    """Yield the path, the text without blocks, and each paragraph of the pages that people write."""
    for path in pages():
        text = BLOCKS[path.suffix].sub(lambda match: "\n" * match[0].count("\n"), path.read_text("utf-8"))
        for paragraph in PARAGRAPH.finditer(text):
            yield path, text, paragraph


def pages():
    """Return the paths of README, its neighbours, and the pages that people write."""
    written = (path for path in DOCS.rglob("*.rst") if path.relative_to(DOCS).parts[0] not in MADE)
    return sorted([*ROOT.glob("*.md"), *written])


def texts(data):
    """Return the texts with blocks of figures, as they should be."""
    found = {}
    for path in pages():
        pattern, text = BLOCKS[path.suffix], path.read_text("utf-8")
        if pattern.search(text):
            found[path] = pattern.sub(lambda match, path=path: block(match, path, data), text)
    return found


def block(match, path, data):
    name = match["name"]
    if name not in SELECTIONS:
        raise UnknownFiguresError(f"{path.name}: no figures are named {name}; allowed: {', '.join(SELECTIONS)}")
    selection = SELECTIONS[name]
    here = selection.machine, selection.regime
    of_machine = [cell for cell in data if (cell.machine["name"], cell.regime) == here]
    is_markdown = path.suffix == ".md"
    if isinstance(selection, Sentence):
        made = sentence(name, selection, of_machine)
        made = made.replace("``", "`") if is_markdown else made
    else:
        table = table_of(name, selection, of_machine)
        made = markdown(*table) if is_markdown else restructured(*table)
    space = "" if is_markdown else "\n"
    return f"{match['open']}{space}{made}{space}{match['close']}"


def table_of(name, selection, of_machine):
    """Return the title, the head and the rows of a table."""
    if isinstance(selection, Overview):
        return machine_page.overview(of_machine, "comparison/")
    if isinstance(selection, Throughput):
        return throughput(name, selection, of_machine)
    return selected(name, selection, of_machine)


def selected(name, selection, of_machine):
    """Return the title, the head and the rows of a selection."""
    if selection.rows == EVERY:
        wanted = [Row(f"{cell.table}: {cell.case}", cell.table, cell.case) for cell in of_machine]
    elif isinstance(selection.rows, str):
        wanted = [Row(cell.case, cell.table, cell.case) for cell in of_machine if cell.table == selection.rows]
    else:
        wanted = selection.rows
    used = cells_of(name, wanted, of_machine)
    rows = [[row.label, *figures(cell, selection)] for row, cell in zip(wanted, used, strict=True)]
    names = [named(each, used[0]) for each in selection.times]
    head = [selection.head, *names, *(f"{named(each, used[0])} / {names[0]}" for each in selection.ratios)]
    unit = "microseconds" if selection.microseconds else "milliseconds"
    title = circumstances(used, f"{unit}, median of alternating runs")
    return f"{selection.title}. {title}" if selection.title else title, head, rows


def cells_of(name, rows, of_machine):
    """Return the cells of rows."""
    found = {(cell.table, cell.case): cell for cell in of_machine}
    if missing := [row for row in rows if (row.table, row.case) not in found] or not rows:
        raise UnknownFiguresError(f"figures {name}: these cells are not saved: {missing}")
    return [found[row.table, row.case] for row in rows]


def sentence(name, selection, of_machine):
    """Return sentences with their figures."""

    def spoken(figure):
        if isinstance(figure, Time):
            (cell,) = cells_of(name, [figure.row], of_machine)
            return number(cell.median(figure.contender) * 1e6 / figure.per)
        used = of_machine if figure.rows == EVERY else cells_of(name, figure.rows, of_machine)
        ratios = [cell.ratio(contender, figure.to) for cell in used for contender in figure.contenders]
        ends = dict.fromkeys([ratio(min(ratios)), ratio(max(ratios))])
        return " to ".join(ends)

    text = selection.text.format_map({key: spoken(figure) for key, figure in selection.figures.items()})
    return textwrap.fill(text, WIDTH, break_long_words=False, break_on_hyphens=False) + "\n"


def throughput(name, selection, of_machine):
    """Return the title, the head and the rows of calls that several Python threads make, each one after the other."""
    used = [cell for cell in of_machine if cell.table == selection.table]
    if not used:
        raise UnknownFiguresError(f"figures {name}: no cells of {selection.table} are saved")
    head = ["Python threads and their calls"]
    for contender in selection.times:
        head += [f"{named(contender, used[0])}: calls a second", "99th percentile"]
    rows = []
    for cell in sorted(used, key=lambda cell: (cell.case.partition(": ")[2], int(cell.case.split()[0]))):
        row = [cell.case]
        for samples in map(cell.samples.get, selection.times):
            known = samples is not None
            rate = int(cell.case.split()[0]) / statistics.fmean(samples) if known else 0
            row += [number(rate), number(p99(samples) * 1e3)] if known else [NONE, NONE]
        rows.append(row)
    return circumstances(used, "calls a second, and the 99th percentile of all calls in milliseconds"), head, rows


def figures(cell, selection):
    """Return the times of a row, and the ratios."""
    scale = (1e6 if selection.microseconds else 1e3) / selection.per
    times = [cell.median(contender) for contender in selection.times]
    ratios = [cell.ratio(contender, selection.times[0]) for contender in selection.ratios]
    row = [NONE if each is None else number(each * scale) for each in times]
    return [*row, *(NONE if each is None else ratio(each) for each in ratios)]


if __name__ == "__main__":
    sys.exit(main())
