"""Write the page and the chart of the saved figures of scaling.py.

The page's text is written by hand, except for the part between ".. scaling: begin" and ".. scaling: end".
"""

import json
import re
from pathlib import Path

import drawing
from figures import difference
from formats import NONE, number, restructured
from scaling_model import BANDWIDTH

DOCS = Path(__file__).parents[1] / "docs"
PAGE = DOCS / "scaling.rst"
MADE = re.compile(r"(?ms)^(\.\. scaling: begin\n).*?^(\.\. scaling: end)$")
MIB = 1 << 20


def main(folder, check=False):
    """Write the page and the chart, or report what differs from the figures. Return the exit code."""
    found = [json.loads(path.read_text("utf-8")) for path in sorted(folder.glob("*.json"))]
    charts = [chart_of(each) for each in found]
    before = PAGE.read_text("utf-8")
    made = "\n".join(line for each, chart in zip(found, charts, strict=True) for line in lines_of(each, chart))
    text = MADE.sub(lambda match: f"{match[1]}\n{made}\n{match[2]}", before)
    stale = [chart for chart in charts if not chart.is_drawn()]
    if check:
        if text != before:
            print(difference(PAGE, text))
        for chart in stale:
            print(f"{chart.path.relative_to(DOCS.parent)} is not drawn from the current figures")
        if text != before or stale:
            print("run: python -m asv_bench.scaling --render")
        return 1 if text != before or stale else 0
    PAGE.write_text(text, "utf-8")
    for chart in stale:
        chart.draw()
    print(f"{PAGE.name} written, {len(stale)} charts drawn")
    return 0


def lines_of(found, chart):
    """Return the lines of the page for a machine."""
    machine, versions = found["machine"], found["versions"]
    cores = machine["cores"]
    head = f"{machine['cpu']}, {cores} cores"
    what = f"Parts timed on {head}, with Numba {versions['numba']}; commit {found['commit']}, {found['date']}."
    waking = sorted(round(call["waking"] / 1e3) for call in found["calls"].values())
    range_of = " to ".join(map(str, dict.fromkeys((waking[0], waking[-1]))))
    model = f"A sleeping helper began {range_of} us after it was woken."
    lines = [head, "-" * len(head), "", f"{what} {model}", "", *drawing.images(chart.path, DOCS, chart.words)]
    lines += [check_of(found)]
    for name, call in found["calls"].items():
        lines += [table_of(name, call)]
    return lines


def check_of(found):
    """Return the table that compares computed and measured times."""
    of_state = ["measured", "ratio"]
    head = ["call", "threads", "in a row: computed", *of_state, "after a pause: computed", *of_state]
    rows = []
    for name, call in found["calls"].items():
        by_threads = {row["of"]: row for row in call["rows"]}
        for real in call["measured"]:
            row = by_threads[real["of"]]
            times = [
                cell
                for state in ("awake", "paused")
                for cell in (number(row[state] * 1e3), number(real[state] * 1e3), f"{row[state] / real[state]:.2f}")
            ]
            rows.append([name, str(real["of"]), *times])
    return restructured("Computed and measured: milliseconds, and computed divided by measured", head, rows)


def table_of(name, call):
    """Return the table of a call."""
    first = call["rows"][0]
    own = []
    if first["packs"]:
        own = ["A, B packed"]
    if first["indices"]:
        own = ["indices read, millions"]
    head = ["threads", "at work", "parts", "pieces", "KiB a piece", "imbalance", "workspace, MiB", *own]
    head += ["not cut, ms", "in a row, ms", "speed-up", "of the limit", "helpers woken, depth"]
    head += ["after a pause, ms", "speed-up"]
    rows = [row_of(row, first) for row in call["rows"]]
    return restructured(name, head, rows)


def row_of(row, first):
    """Return the cells of a number of threads."""
    cells = [row["of"], row["threads"], row["parts"], row["pieces"], number(row["moved"] / row["pieces"] / 1024)]
    cells += [f"{row['imbalance']:.2f}", number(row["workspace"] / MIB)]
    if row["packs"]:
        cells.append(", ".join(map(str, row["packs"])))
    if row["indices"]:
        cells.append(number(row["indices"] / 1e6))
    awake, paused = (
        [number(row[state] * 1e3), number(first[state] / row[state])] if state in row else [NONE, NONE]
        for state in ("awake", "paused")
    )
    cells.append(number(row["serial"] * 1e3) if "serial" in row else NONE)
    limit = f"{limit_of(row, first) / row['awake']:.2f}" if "awake" in row else NONE
    return list(map(str, [*cells, *awake, limit, f"{row['woken']}, {row['depth']}", *paused]))


def limit_of(row, first):
    """Return the least seconds of a call: its share of one thread's seconds, or the time to move its bytes."""
    return max(first["awake"] / row["of"], first["moved"] / BANDWIDTH)


def chart_of(found):
    """Return a chart with a panel for each call that ran: its speed-up against threads."""
    panels = {name: call["rows"] for name, call in found["calls"].items() if "awake" in call["rows"][0]}
    columns = 3
    count = -(-len(panels) // columns)

    def draw(axes, mode):
        flat = list(axes.flat)
        for axis in flat[len(panels) :]:
            axis.set_axis_off()
        for axis, (name, rows) in zip(flat, panels.items(), strict=False):
            draw_panel(axis, mode, name, rows)
        handles = flat[0].get_legend_handles_labels()
        flat[0].figure.legend(*handles, loc="outside upper left", ncols=1 if drawing.is_narrow(flat[0]) else 3)

    best = "; ".join(f"{name}: {max(row['awake'] for row in rows[:1]) / min(row['awake'] for row in rows):.3g}"
                     for name, rows in panels.items())  # fmt: skip
    words = f"Computed speed-ups on 1 to 256 threads. The highest of calls in a row: {best}"
    path = DOCS / "charts" / found["machine"]["name"] / "scaling.svg"
    size, narrow = (9, 0.6 + 2.4 * count), (0.6 + 2.4 * len(panels), len(panels))
    return drawing.Chart(path, words, panels, draw, size, (count, columns), narrow)


def draw_panel(axis, mode, name, rows):
    threads = [row["of"] for row in rows]
    axis.plot(threads, threads, color=drawing.PALE[mode], linestyle=":", label="a thread each")
    for state, label, line in (("awake", "computed, in a row", "-"), ("paused", "computed, after a pause", "--")):
        style = {**drawing.look("dmlcpu", mode), "linestyle": line, "markersize": 3}
        axis.plot(threads, [rows[0][state] / row[state] for row in rows], **style, label=label)
    axis.set(xscale="log", yscale="log", ylim=(0.5, 300))
    drawing.plain_ticks(axis.yaxis)
    axis.set_xticks(threads[::2], [str(each) for each in threads[::2]])
    axis.set_xticks([], minor=True)
    axis.set_title(name.replace(", ", "\n", 1), fontsize=9 if drawing.is_narrow(axis) else 8, loc="left")
    axis.grid()
