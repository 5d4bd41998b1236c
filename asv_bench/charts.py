"""The charts of the comparison, drawn from saved cells."""

import itertools
import re
import statistics
from pathlib import Path

import drawing
from drawing import Chart
from formats import ratio as shown
from matplotlib.ticker import NullLocator
from selections import FRONT, MACHINE, TITLES

DOCS = Path(__file__).parents[1] / "docs"
CHARTS = DOCS / "charts"
PEERS = ("numpy", "onnxruntime", "torch")
LIMITS = "Part of the machine's limit"
SWEEPS = {  # table: what varies, its meaning, and a pattern of the cases, which finds the size
    "top_k_sizes": ("n", "elements of each of 100 rows, k = 10", r"100x(\d+) k 10 float32"),
    "top_k_sizes k": ("k", "k of each of 100 rows of 10,000", r"100x10000 k (\d+) float32"),
    "quantized_matmul_sizes": ("m", "rows of A, times 1,024 x 1,024, packed", r"(\d+)x1024x1024 .*"),
}


def of(data):
    """Return all charts of some cells."""
    charts = []
    for name in sorted({cell.machine["name"] for cell in data}):
        charts += of_machine(name, [cell for cell in data if cell.machine["name"] == name])
    return charts


def of_machine(name, cells):
    steady = [cell for cell in cells if cell.regime == "steady"]
    return ([front(steady)] if name == MACHINE else []) + list(itertools.chain(*by_section(name, cells).values()))


def by_section(name, cells):
    """Return the charts of each section of a machine's page, by table; those of the machine's limit are LIMITS."""
    folder, steady, found = CHARTS / name, [cell for cell in cells if cell.regime == "steady"], {}
    for table in TITLES:
        some = [cell for cell in steady if cell.table == table and times(cell)]
        found[table] = sweeps(folder, table, some)
        if some and not found[table]:
            found[table] = [ratios(folder / f"{table}.svg", TITLES[table], some)]
    limited = {unit: [cell for cell in steady if cell.limit.get(unit) and cell.table in _LIMITED] for unit in _UNITS}
    found[LIMITS] = [roofline(folder / f"roofline_{unit}.svg", unit, some) for unit, some in limited.items() if some]
    return found


_UNITS = ("bytes", "products")
_LIMITED = ("top_k", "scatter_nd", "quantized_matmul", "matmul_integer", "matmul_integer_to_float", "quantize_linear")


def times(cell):
    """Return how many times as long as dmlcpu each peer with a correct result takes."""
    return {peer: cell.ratio(peer) for peer in PEERS if cell.ratio(peer)}


def ratios(path, title, cells, labels=None):
    """Return bars of the fastest peer's time divided by dmlcpu's, with a mark for each peer."""
    rows = [(labels[number] if labels else cell.case, times(cell)) for number, cell in enumerate(cells)]
    rows = [(label, found) for label, found in rows if found]

    def draw(axes, mode):
        places = range(len(rows) - 1, -1, -1)
        for place, (_, found) in zip(places, rows, strict=True):
            best = min(found.values())
            faster = {"color": drawing.COLOURS["dmlcpu"][mode], "alpha": 0.35}
            slower = {"facecolor": "none", "edgecolor": drawing.INK[mode], "hatch": "////"}
            axes.barh(place, best - 1, left=1, height=0.6, **(faster if best >= 1 else slower))
            at_the_right(axes, place, shown(best))
            for peer, value in found.items():
                axes.plot(
                    value, place, **{**drawing.look(peer, mode), "linestyle": "none"}, markersize=5, clip_on=False
                )
        mark_dmlcpu(axes, places, drawing.COLOURS["dmlcpu"][mode])
        axes.set_xscale("log")
        drawing.plain_ticks(axes.xaxis)
        drawing.name_rows(axes, list(places), [label for label, _ in rows])
        axes.set_xlim(min(0.5, 0.8 * min(min(found.values()) for _, found in rows)), None)
        is_slower = any(min(found.values()) < 1 for _, found in rows)
        hatched = "; hatched bars: dmlcpu is slower" if is_slower else ""
        axes.set_xlabel(f"times as long as dmlcpu; the number is that of the fastest{hatched}", loc="right")
        axes.grid(not drawing.is_narrow(axes), axis="x")  # it would cross the labels
        axes.set_axisbelow(True)
        legend(axes, mode, title, [peer for peer in PEERS if any(peer in found for _, found in rows)])

    words = f"{title}: how many times as long as dmlcpu other libraries take; the table has the figures"
    size, narrow = (9, 1.6 + 0.27 * len(rows)), (1.9 + 0.42 * len(rows), 1)
    return Chart(path, words, [title, rows], draw, size, narrow=narrow)


def mark_dmlcpu(axes, places, colour):
    """Draw a line at dmlcpu's own time, in the narrow form only in the rows, so that it crosses no label."""
    if not drawing.is_narrow(axes):
        axes.axvline(1, color=colour, linewidth=1.5)
        return
    for place in places:
        axes.plot([1, 1], [place - 0.3, place + 0.3], color=colour, linewidth=1.5, scaley=False)


def legend(axes, mode, title, contenders):
    """Write the title and, below it, the names of the contenders."""
    handles = [
        axes.plot([], [], **{**drawing.look(each, mode), "linestyle": "none"}, label=drawing.NAMES[each])[0]
        for each in contenders
    ]
    axes.figure.legend(
        handles=handles,
        loc="outside upper left",
        ncols=2 if drawing.is_narrow(axes) else len(handles),
        handletextpad=0.1,
        columnspacing=1.5,
        title=drawing.cut(axes, title),
        title_fontproperties={"weight": "bold", "size": 11},
        alignment="left",
    )


def front(cells):
    """Return the chart of the first page."""
    found = {(cell.table, cell.case): cell for cell in cells}
    rows = [(row.label.replace("`", ""), found[row.table, row.case]) for row in FRONT if (row.table, row.case) in found]
    title = "How much longer others take (two threads, AMD Zen 4)"
    return ratios(CHARTS / "front.svg", title, [cell for _, cell in rows], [label for label, _ in rows])


def roofline(path, unit, cells):
    """Return bars of the part of the machine's limit that dmlcpu reaches in its fastest run.

    If other programs use the cores for seconds, a cell's limit may be too low: the median of all limits is the least.
    """
    usual = statistics.median(cell.limit[unit] for cell in cells)
    rows = [
        (cell.case, cell.work[unit] / min(cell.samples["dmlcpu"]) / max(usual, cell.limit[unit]))
        for cell in cells
        if cell.median("dmlcpu")
    ]
    what = {"bytes": "of the bytes that np.max reads a second", "products": "of the multiply instruction's rate"}[unit]

    def draw(axes, mode):
        places = range(len(rows) - 1, -1, -1)
        axes.barh(
            list(places), [part for _, part in rows], height=0.6, color=drawing.COLOURS["dmlcpu"][mode], alpha=0.6
        )
        for place, (_, part) in zip(places, rows, strict=True):
            at_the_right(axes, place, f"{part:.2f}")
        axes.axvline(1, color=drawing.INK[mode], linewidth=1, linestyle="--")
        drawing.name_rows(axes, list(places), [label for label, _ in rows])
        axes.set_ylim(-0.6, len(rows) - 0.4)
        axes.set_xlabel(f"part {what}, on as many threads; beyond 1: in the caches", loc="right")
        axes.figure.suptitle(f"{LIMITS}: {unit}", x=0.01, ha="left", fontweight="bold", fontsize=11)

    words = f"The part {what} that dmlcpu reaches: " + "; ".join(f"{case}: {part:.2f}" for case, part in rows)
    return Chart(path, words, rows, draw, (9, 1.3 + 0.27 * len(rows)), narrow=(1.6 + 0.42 * len(rows), 1))


def at_the_right(axes, place, text):
    """Write a figure at the end of a row."""
    axes.annotate(
        text,
        (1, place),
        xycoords=("axes fraction", "data"),
        xytext=(28, 0),
        textcoords="offset points",
        va="center",
        ha="right",
    )


def sweeps(folder, table, cells):
    """Return the charts of a table that show time against a size."""
    charts = []
    for key, (name, words, pattern) in SWEEPS.items():
        points = []
        for cell in cells if key.split()[0] == table else ():
            if match := re.fullmatch(pattern, cell.case):
                medians = {each: cell.median(each) for each in ("dmlcpu", *PEERS) if cell.median(each)}
                points.append([int(match[1]), medians])
        if len(points) > 1:
            charts.append(sweep(folder / f"{table}_{name}.svg", name, words, sorted(points)))
    return charts


def sweep(path, name, words, points):
    """Return a line for each contender: its time against a size."""
    contenders = [each for each in ("dmlcpu", *PEERS) if any(each in medians for _, medians in points)]

    def draw(axes, mode):
        for each in contenders:
            line = [(size, medians[each] * 1e3) for size, medians in points if each in medians]
            axes.plot(*zip(*line, strict=True), **drawing.look(each, mode), markersize=5)
        axes.set(xscale="log", yscale="log", xlabel=words, ylabel="milliseconds")
        drawing.plain_ticks(axes.yaxis)
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_xticks([size for size, _ in points], [f"{size:,}" for size, _ in points])
        axes.grid()
        legend(axes, mode, f"Milliseconds against {name}", contenders)

    title = f"Milliseconds against {words}, of {', '.join(drawing.NAMES[each] for each in contenders)}"
    return Chart(path, title, points, draw, (7, 4))
