"""Measure past versions of dmlcpu, and draw the time of each.

    python -m asv_bench.history                          # draw the saved results into docs/
    python -m asv_bench.history --check                  # fail if the drawings differ from the results
    python -m asv_bench.history --run 7c08ae8 ed98c0d    # measure these commits first (asv, some minutes each)

asv builds each commit in a new environment and runs the cells of past/ twice: once to compile and cache the kernels,
and once to time them. It writes the results to asv_bench/results/MACHINE/.
"""

import argparse
import ast
import itertools
import json
import math
import platform
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parent))  # modules in this folder, as for scripts

import drawing
import machine

HERE = Path(__file__).parent
RESULTS = HERE / "results"
MESSAGES = RESULTS / "messages.json"
DOCS = HERE.parent / "docs"
SETTINGS = "asv.history.conf.json"
TITLES = {"TopK": "top_k", "Scatter": "scatter_nd and add_at", "Products": "Products", "Quantizers": "Quantizers",
          "Tiny": "Tiny calls (microseconds a call)"}  # fmt: skip
LEAST = 0.1  # the least step: the part by which the time changes


class Step(NamedTuple):
    """A change of dmlcpu's time: the case, the first commit with it, and the factor."""

    case: str
    commit: str
    factor: float


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--run", nargs="+", metavar="COMMIT", help="measure these commits on this machine first")
    parser.add_argument("--check", action="store_true", help="only check that everything is drawn from the results")
    args = parser.parse_args(arguments)
    if args.run:
        run(args.run)
    charts, texts = [], {}
    for folder in sorted(each for each in RESULTS.glob("*") if each.is_dir()):
        made, text = page(folder)
        charts += made
        texts[DOCS / "history" / f"{folder.name}.rst"] = text
    stale = [path for path, text in texts.items() if not path.is_file() or path.read_text("utf-8") != text]
    stale += [chart.path for chart in charts if not chart.is_drawn()]
    if args.check:
        for path in stale:
            print(f"{path.relative_to(DOCS.parent)} differs from the results: run python -m asv_bench.history")
        return 1 if stale else 0
    for path, text in texts.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    for chart in charts:
        if not chart.is_drawn():
            chart.draw()
    print(f"{len(stale)} files written")
    return 0


def run(commits):
    """Measure commits with asv, on this machine."""
    asv = [sys.executable, "-m", "asv"]
    where = ["--config", SETTINGS, "--machine", machine.name()]
    described = [
        "--os",
        platform.system(),
        "--arch",
        platform.machine(),
        "--cpu",
        machine.cpu(),
        "--num_cpu",
        str(machine.cores()),
    ]
    described += ["--ram", f"{machine.memory()} GiB", "--yes"]
    subprocess.run([*asv, "machine", *where, *described], cwd=HERE, check=True)
    for commit in commits:
        command = [*asv, "run", *where, f"{commit}^!"]
        subprocess.run([*command, "--quick", "--dry-run"], cwd=HERE, check=True)
        subprocess.run(command, cwd=HERE, check=True)


def load(folder):
    """Return a machine's commits in order, its parameters, and the seconds of each cell: {title: {cell: [...]}}."""
    results = [json.loads(path.read_text("utf-8")) for path in folder.glob("*-env-*.json")]
    results.sort(key=lambda result: result["date"])
    series = {}
    for number, result in enumerate(results):
        for name, columns in result["results"].items():
            found = dict(zip(result["result_columns"], columns, strict=False))
            (cells,) = found["params"]
            group = series.setdefault(name.split(".")[1], {})
            for cell, seconds in zip(cells, found["result"] or [None] * len(cells), strict=True):
                line = group.setdefault(ast.literal_eval(cell), [None] * len(results))
                line[number] = None if seconds is None or math.isnan(seconds) else seconds
    return [result["commit_hash"][:7] for result in results], results[-1]["params"], series


def by_case(group):
    """Return the series of each contender by case."""
    cases = {}
    for cell, line in group.items():
        implementation, _, case = cell.partition(": ")
        cases.setdefault(case, {})[implementation] = line
    return cases


def steps(case, commits, line):
    """Return the steps of a series, by asv's own detection on the logarithms."""
    from asv.step_detect import detect_steps

    segments = detect_steps([None if value is None else math.log(value) for value in line])
    found = []
    for (_, _, before, *_), (start, _, after, *_) in itertools.pairwise(segments):
        factor = math.exp(after - before)
        if abs(factor - 1) > LEAST:
            found.append(Step(case, commits[start], factor))
    return found


def page(folder):
    """Return the charts of a machine, and the text of its page."""
    commits, params, series = load(folder)
    title = f"{params['cpu']}"
    versions = ", ".join(f"{name} {params[name]}" for name in ("numba", "numpy", "onnxruntime", "torch"))
    lines = [title, "=" * len(title), "", f"{len(commits)} commits; {versions}.", ""]
    charts = []
    for name in [name for name in TITLES if name in series]:
        cases = by_case(series[name])
        found = [step for case, lines_of in cases.items() for step in steps(case, commits, lines_of["dmlcpu"])]
        chart = history_chart(folder.name, name, commits, cases, found)
        charts.append(chart)
        lines += [TITLES[name], "-" * len(TITLES[name]), "", *drawing.images(chart.path, DOCS, chart.words)]
        lines += table_of(found) if found else []
    return charts, "\n".join(lines).rstrip() + "\n"


def table_of(found):
    """Return the lines of a table of steps."""
    lines = [".. list-table:: Steps of dmlcpu's time", "   :header-rows: 1", "   :widths: 50 12 12 26", ""]
    head = "Call", "Commit", "Factor", "Message of the commit"
    for row in [head, *((*each, message(each.commit)) for each in found)]:
        case, commit, factor, text = row
        cells = (case, commit, factor if isinstance(factor, str) else f"{factor:.2f}", text)
        lines += [f"   {'  ' if number else '* '}- {cell}" for number, cell in enumerate(cells)]
    return [*lines, ""]


def message(commit):
    """Return the first line of a commit's message, and save it, because a clone may lack old commits."""
    kept = json.loads(MESSAGES.read_text("utf-8")) if MESSAGES.is_file() else {}
    if commit not in kept:
        command = ["git", "log", "-1", "--format=%s", commit]
        done = subprocess.run(command, cwd=HERE, capture_output=True, text=True, check=True)
        kept[commit] = done.stdout.strip()
        MESSAGES.write_text(json.dumps(kept, indent=1) + "\n", "utf-8")
    return re.sub(r"([*_`|\\])", r"\\\1", kept[commit])


def history_chart(name, group, commits, cases, found):
    """Return a chart with a panel for each case: the time at each commit, and dmlcpu's steps."""
    columns = 2 if len(cases) > 1 else 1
    rows = math.ceil(len(cases) / columns)

    def draw(axes, mode):
        panels = list(axes.flat) if hasattr(axes, "flat") else [axes]
        for panel in panels[len(cases) :]:
            panel.set_axis_off()
        for panel, (case, lines) in zip(panels, cases.items(), strict=False):
            draw_panel(panel, mode, commits, case, lines, [step for step in found if step.case == case])
        contenders = list(dict.fromkeys(drawing.family(each) for lines in cases.values() for each in lines))
        handles = [
            panels[0].plot([], [], **drawing.look(each, mode), label=drawing.NAMES[each])[0] for each in contenders
        ]
        panels[0].figure.legend(handles=handles, loc="outside upper left", ncols=len(handles))

    words = f"Milliseconds of {TITLES[group]} at {len(commits)} commits, for {len(cases)} cases"
    path = DOCS / "charts" / name / f"history_{group.lower()}.svg"
    size, narrow = (9, 0.6 + 2.5 * rows), (0.8 + 2.5 * len(cases), len(cases))
    return drawing.Chart(path, words, [commits, cases, found], draw, size, (rows, columns), narrow)


def draw_panel(panel, mode, commits, case, lines, found):
    small, every = (9, 2) if drawing.is_narrow(panel) else (7, 1)
    for contender, line in lines.items():
        ours = contender == "dmlcpu"
        milliseconds = [math.nan if value is None else value * 1e3 for value in line]
        style = {**drawing.look(contender, mode), "linewidth": 2 if ours else 1, "markersize": 4 if ours else 3}
        style["linestyle"] = "--" if contender == "dmlcpu compiled" else style["linestyle"]
        panel.plot(range(len(commits)), milliseconds, **style)
    for step in found:
        place = commits.index(step.commit)
        panel.axvline(place, color=drawing.PALE[mode], linewidth=0.8, linestyle=":")
        panel.annotate(
            f"x{step.factor:.2g}", (place, 1), xycoords=("data", "axes fraction"), fontsize=small, ha="center"
        )
    panel.set_yscale("log")
    drawing.plain_ticks(panel.yaxis)
    panel.set_xticks(range(0, len(commits), every), commits[::every], rotation=90, fontsize=small)
    panel.set_title(case, fontsize=9, loc="left", pad=12)
    panel.grid(axis="y")


if __name__ == "__main__":
    sys.exit(main())
