"""The page of each machine in the comparison: a table of medians, then every call with its chart."""

import statistics

import charts
import drawing
from benchmarks.turns import UNEVEN
from cells import p99
from formats import NAMES, NONE, circumstances, number, ratio, restructured
from selections import CALLERS, TITLES


def pages(data):
    """Return the text of each machine's page, by path."""
    machines = sorted({cell.machine["name"] for cell in data})
    return {
        charts.DOCS / "comparison" / f"{name}.rst": page([c for c in data if c.machine["name"] == name])
        for name in machines
    }


def page(of_machine):
    first, steady = of_machine[0], [cell for cell in of_machine if cell.regime == "steady"]
    name, title = first.machine["name"], f"{first.machine['cpu']}, {first.machine['cores']} cores"
    versions = ", ".join(f"{package} {version}" for package, version in first.versions.items())
    features = ", ".join(first.machine["features"])
    commits = ", ".join(sorted({cell.commit for cell in of_machine}))
    memory = first.machine["memory_gib"]
    lines = [
        title,
        "=" * len(title),
        "",
        f"Instruction sets: {features}. Memory: {memory} GiB. Versions: {versions}. Commits: {commits}.",
        "",
        "`How to read the tables <../performance.rst#how-to-read-comparisons>`__ explains the terms.",
        "",
        restructured(*overview(steady)),
    ]
    tables = {cell.table for cell in of_machine}
    if others := [link(name, table) for table in TITLES if table in tables - {cell.table for cell in steady}]:
        lines += [f"Timed only in other regimes: {', '.join(others)}.", ""]
    drawn = charts.by_section(name, of_machine)
    for table in sorted(tables, key=list(TITLES).index):
        lines += [f".. _{label(name, table)}:", "", TITLES[table], "-" * len(TITLES[table]), "", *images(drawn[table])]
        for regime in ("steady", "paused", *UNEVEN, CALLERS):
            some = [cell for cell in of_machine if (cell.table, cell.regime) == (table, regime)]
            lines += whole_table(regime, some) if some else []
    if drawn[charts.LIMITS]:
        lines += [charts.LIMITS, "-" * len(charts.LIMITS), "", *images(drawn[charts.LIMITS])]
    return "\n".join(lines).rstrip() + "\n"


def images(some):
    return [line for chart in some for line in drawing.images(chart.path, charts.DOCS, chart.words)]


def label(machine, table):
    """Return the label of a table's section on a machine's page."""
    return f"{machine}-{table}".replace("_", "-")


def link(machine, table, folder=""):
    """Return a link to a table's section; folder: where the machines' pages are, seen from the page with the link."""
    return f"`{TITLES[table]} <{folder}{machine}.rst#{label(machine, table)}>`__"


def overview(steady, folder=""):
    """Return the title, the head and the rows of a machine's table of medians: a row for each table of cells.

    folder: as in `link`.
    """
    rows = []
    for table in TITLES:
        found = [others for cell in steady if cell.table == table and (others := ratios(cell))]
        if found:
            best = [min(others.values()) for others in found]
            peers = [[others[peer] for others in found if peer in others] for peer in charts.PEERS]
            medians = [ratio(statistics.median(each)) if each else NONE for each in (*peers, best)]
            losses = f"{sum(each < 1 for each in best)} of {len(best)}"
            rows.append([link(steady[0].machine["name"], table, folder), *medians, losses])
    figures = "how many times as long as dmlcpu other libraries take, the median of the calls of a row"
    head = ["Calls", *(NAMES[peer] for peer in charts.PEERS), "The fastest", "dmlcpu is slower in"]
    return circumstances(steady, figures), head, rows


def ratios(cell):
    """Return how many times as long as dmlcpu each other library takes."""
    others = [name for name in cell.samples if "dmlcpu" not in name]
    return {name: value for name in others if (value := cell.ratio(name))}


def whole_table(regime, some):
    """Return a table of all cells of a table in a regime, and which results are wrong."""
    names = [name for name in some[0].samples if any(name in cell.samples for cell in some)]
    names += [name for cell in some for name in cell.samples if name not in names]
    names = list(dict.fromkeys(names))
    kind = "median of alternating runs" if regime in ("steady", "paused") else "median and 99th percentile of calls"
    title = f"{regime.capitalize()}: milliseconds, {kind}; in parentheses: the ratio to dmlcpu's time"
    rows = [[cell.case, *(shown(cell, name) for name in names)] for cell in some]
    of_wrong = [(cell.case, name, reason) for cell in some for name, reason in cell.wrong.items()]
    wrong = [f"- {case}, {NAMES.get(name, name)}: {reason}" for case, name, reason in of_wrong]
    text = restructured(title, ["case", *(NAMES.get(name, name) for name in names)], rows)
    return [text, *(["Wrong results, which have no time:", "", *wrong, ""] if wrong else [])]


def shown(cell, name):
    """Return a contender's time and its ratio to dmlcpu's; a loss of dmlcpu is in bold."""
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
