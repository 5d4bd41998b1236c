"""Write the figures of the saved cells into the documentation, or check that it has them.

A block of a text between these two lines is made of the data (in Markdown, HTML comments with the same words):

    .. figures: NAME
    .. figures: end

selections.py says what a name stands for. Besides, each machine has a page of all its cells, and charts.
"""

import difflib
import re
import statistics
import sys
from pathlib import Path

import cells
import charts
from benchmarks.turns import UNEVEN
from selections import CALLERS, EVERY, SELECTIONS, TITLES, Row, Sentence, Throughput

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
NONE = "n/a"  # not a dash, which reStructuredText takes for a list
NAMES = {
    "dask topk": "Dask topk",
    "dask topk and argtopk": "Dask topk and argtopk",
    "dmlcpu all": 'take="all"',
    "dmlcpu out": "dmlcpu with out",
    "faiss flat": "FAISS flat",
    "faiss sq8": "FAISS 8 bits",
    "numkong": "NumKong",
    "numpy": "NumPy",
    "onnxruntime": "ONNX Runtime",
    "reference": "reference evaluator",
    "torch": "PyTorch",
    "torch on dmlcpu": "PyTorch on dmlcpu",
}


class UnknownFiguresError(ValueError):
    """A text asks for figures that are not there."""


def main(check=False):
    """Write all figures, or report those that are not as in the data; return the exit code."""
    data = cells.load()
    wanted = {**texts(data), **pages(data)}
    stale = {path: text for path, text in wanted.items() if not path.is_file() or path.read_text("utf-8") != text}
    old_charts = [chart for chart in charts.of(data) if not chart.is_drawn()]
    if check:
        for path, text in stale.items():
            print(difference(path, text))
        for chart in old_charts:
            print(f"{chart.path.relative_to(ROOT)} is not drawn from the data of today")
        if stale or old_charts:
            print("run: python asv_bench/compare.py --render")
        return 1 if stale or old_charts else 0
    for path, text in stale.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    for chart in old_charts:
        chart.draw()
    print(f"{len(stale)} texts and {len(old_charts)} charts written")
    return 0


def difference(path, text):
    """Return the lines of a file that are not as in the data."""
    before = path.read_text("utf-8").splitlines() if path.is_file() else []
    name = path.relative_to(ROOT).as_posix()
    return "\n".join(difflib.unified_diff(before, text.splitlines(), name, f"{name}, of the data", lineterm="", n=0))


def texts(data):
    """Return the texts with blocks of figures, as they should be."""
    found = {}
    for path in sorted([ROOT / "README.md", *DOCS.rglob("*.rst")]):
        pattern, text = BLOCKS[path.suffix], path.read_text("utf-8")
        if "_build" not in path.parts and pattern.search(text):
            found[path] = pattern.sub(lambda match, path=path: block(match, path, data), text)
    return found


def block(match, path, data):
    name = match["name"]
    if name not in SELECTIONS:
        raise UnknownFiguresError(f"{path.name}: no figures are named {name}; there are {', '.join(SELECTIONS)}")
    selection = SELECTIONS[name]
    here = selection.machine, selection.regime
    of_machine = [cell for cell in data if (cell.machine["name"], cell.regime) == here]
    if isinstance(selection, Sentence):
        made = sentence(selection, of_machine, code="`" if path.suffix == ".md" else "``")
    else:
        table = (throughput if isinstance(selection, Throughput) else selected)(name, selection, of_machine)
        made = markdown(*table) if path.suffix == ".md" else restructured(*table)
    space = "\n" if path.suffix == ".rst" else ""
    return f"{match['open']}{space}{made}{space}{match['close']}"


def selected(name, selection, of_machine):
    """Return the title, the head and the rows of a selection."""
    if selection.rows == EVERY:
        wanted = [Row(f"{cell.table}: {cell.case}", cell.table, cell.case) for cell in of_machine]
    elif isinstance(selection.rows, str):
        wanted = [Row(cell.case, cell.table, cell.case) for cell in of_machine if cell.table == selection.rows]
    else:
        wanted = selection.rows
    found = {(cell.table, cell.case): cell for cell in of_machine}
    if missing := [row for row in wanted if (row.table, row.case) not in found] or not wanted:
        raise UnknownFiguresError(f"figures {name}: these cells are not saved: {missing}")
    used = [found[row.table, row.case] for row in wanted]
    rows = [[row.label, *figures(cell, selection)] for row, cell in zip(wanted, used, strict=True)]
    unit = "microseconds" if selection.microseconds else "milliseconds"
    names = [named(each, used[0]) for each in selection.times]
    head = [selection.head, *(f"{each}, {unit}" for each in names)]
    head += [f"{named(each, used[0])} / {named(selection.times[-1], used[0])}" for each in selection.ratios]
    return circumstances(used), head, rows


def sentence(selection, of_machine, code):
    """Return a sentence with the least and the greatest ratio of each contender's time to dmlcpu's."""
    found = {(cell.table, cell.case): cell for cell in of_machine}
    parts = []
    for contender in selection.contenders:
        ratios = [found[row.table, row.case].ratio(contender) for row in selection.rows]
        parts.append(f"{min(ratios):.0f} to {max(ratios):.0f} times as fast as {NAMES[contender]}")
    return f"{code}{selection.function}{code} is {' and '.join(parts)}.\n"


def throughput(name, selection, of_machine):
    """Return the title, the head and the rows of calls that several Python threads make, each one after the other."""
    used = [cell for cell in of_machine if cell.table == selection.table]
    if not used:
        raise UnknownFiguresError(f"figures {name}: no cells are saved of {selection.table}")
    head = ["Python threads and their calls"]
    for contender in selection.times:
        head += [f"{named(contender, used[0])}: calls a second", "99th percentile, milliseconds"]
    rows = []
    for cell in sorted(used, key=lambda cell: (cell.case.partition(": ")[2], int(cell.case.split()[0]))):
        row = [cell.case]
        for samples in map(cell.samples.get, selection.times):
            known = samples is not None
            rate = int(cell.case.split()[0]) / statistics.fmean(samples) if known else 0
            row += [number(rate), number(p99(samples) * 1e3)] if known else [NONE, NONE]
        rows.append(row)
    return circumstances(used).replace("medians of turns", "of all calls"), head, rows


def figures(cell, selection):
    """Return the times of a row, and the ratios."""
    scale = (1e6 if selection.microseconds else 1e3) / selection.per
    times = [cell.median(contender) for contender in selection.times]
    ratios = [cell.ratio(contender, selection.times[-1]) for contender in selection.ratios]
    row = [NONE if each is None else number(each * scale) for each in times]
    return [*row, *(NONE if each is None else ratio(each) for each in ratios)]


def named(contender, cell):
    """Return a contender with its version."""
    packages = {"dask topk": "dask", "faiss flat": "faiss-cpu", "faiss sq8": "faiss-cpu"}
    name, version = NAMES.get(contender, contender), cell.versions.get(packages.get(contender, contender))
    return name if version is None or contender == "dmlcpu" else f"{name} {short(version)}"


def short(version):
    """Return a version's first numbers."""
    return ".".join(version.split("+")[0].split(".")[:2])


def circumstances(used):
    """Return the machine and the days of some cells, in a few words."""
    first, days = used[0], sorted({cell.date for cell in used})
    when = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    return f"{first.machine['cpu']}, {first.threads} threads, {when}; medians of turns"


def number(value):
    """Return a figure with three digits."""
    return f"{float(f'{value:.3g}'):,.{max(0, 2 - exponent(value))}f}"


def exponent(value):
    return int(f"{value:e}".partition("e")[2])


def ratio(value):
    return number(value) if value < 10 else f"{value:.0f}"


def restructured(title, head, rows, first=40):
    """Return a list-table; first: the width of the first column, where others have 15."""
    widths = " ".join([str(first), *(["15"] * (len(head) - 1))])
    lines = [f".. list-table:: {title}", "   :header-rows: 1", f"   :widths: {widths}", ""]
    for row in (head, *rows):
        lines += [f"   {'  ' if i else '* '}- {cell}".rstrip() for i, cell in enumerate(row)]
    return "\n".join(lines) + "\n"


def markdown(title, head, rows):
    """Return a Markdown table, and its title below."""
    lines = [f"| {' | '.join(row)} |".replace("``", "`") for row in (head, ["---"] * len(head), *rows)]
    return "\n".join([*lines, "", f"{title}."]) + "\n"


def pages(data):
    """Return the page of each machine with all its cells."""
    machines = sorted({cell.machine["name"] for cell in data})
    return {
        DOCS / "comparison" / f"{name}.rst": page([c for c in data if c.machine["name"] == name]) for name in machines
    }


def page(of_machine):
    first = of_machine[0]
    title = f"{first.machine['cpu']}, {first.machine['cores']} cores"
    versions = ", ".join(f"{name} {version}" for name, version in first.versions.items())
    features = ", ".join(first.machine["features"])
    commits = ", ".join(sorted({cell.commit for cell in of_machine}))
    lines = [
        title,
        "=" * len(title),
        "",
        f"Instruction sets: {features}. {first.machine['memory_gib']} GiB of memory. {versions}. Commits: {commits}.",
        "",
    ]
    lines += charts.of_page(first.machine["name"], of_machine)
    for table in sorted({cell.table for cell in of_machine}, key=list(TITLES).index):
        lines += [TITLES[table], "-" * len(TITLES[table]), ""]
        for regime in ("steady", "paused", *UNEVEN, CALLERS):
            some = [cell for cell in of_machine if (cell.table, cell.regime) == (table, regime)]
            lines += whole_table(regime, some) if some else []
    return "\n".join(lines).rstrip() + "\n"


def whole_table(regime, some):
    """Return a table of all cells of a table in a regime, and what is wrong or missing in it."""
    names = [name for name in some[0].samples if any(name in cell.samples for cell in some)]
    names += [name for cell in some for name in cell.samples if name not in names]
    names = list(dict.fromkeys(names))
    kind = "medians" if regime in ("steady", "paused") else "medians and 99th percentiles of calls"
    title = f"{regime.capitalize()}: milliseconds, {kind}; in brackets: times as long as dmlcpu"
    rows = [[cell.case, *(shown(cell, name) for name in names)] for cell in some]
    faults = [f"{cell.case}: {name}: {fault}." for cell in some for name, fault in cell.wrong.items()]
    text = restructured(title, ["case", *(NAMES.get(name, name) for name in names)], rows)
    return [text, *(["Wrong results, which have no figure: " + " ".join(faults), ""] if faults else [])]


def shown(cell, name):
    """Return a contender's time, and how many times dmlcpu's it is; losses of dmlcpu are in bold."""
    median = cell.median(name)
    if median is None:
        return "wrong" if name in cell.wrong else NONE
    text = number(median * 1e3)
    if cell.regime in (*UNEVEN, CALLERS):
        text += f", {number(p99(cell.samples[name]) * 1e3)}"
    times = None if name.startswith("dmlcpu") else cell.ratio(name)
    if times is None:
        return text
    return f"{text} ({ratio(times)})" if times >= 1 else f"{text} **({ratio(times)})**"


def p99(samples):
    return statistics.quantiles(samples, n=100)[-1] if len(samples) > 1 else samples[0]


if __name__ == "__main__":
    sys.exit(main())
