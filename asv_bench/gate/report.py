"""The report: a Markdown table."""

import platform
from pathlib import Path

EXPLAINED = {
    0: "No slowdown.",
    1: "Slower, in two runs.",
    2: "No verdict:",
}


def report(outcome, hello, title):
    """Return the report. hello: what a process said of the environment."""
    lines = [
        f"## {title}",
        "",
        " ".join([EXPLAINED[outcome.exit_code], *(f"{each}." for each in outcome.withheld)]),
        "",
        f"{machine()}; {hello['threads']} threads; "
        + ", ".join(f"{name} {version}" for name, version in hello["versions"].items())
        + ".",
        "",
        "| cell | base ms | head ms | head / base | interval | A/A | verdict |",
        "|---|---|---|---|---|---|---|",
        *map(_line, outcome.rows),
    ]
    return "\n".join(lines)


def _line(row):
    if row.judged is None:
        return f"| {row.cell} | - | - | - | - | - | {row.verdict} |"
    base, head = (f"{seconds * 1e3:.4g}" for seconds in row.judged.seconds)
    ratio = row.judged.ratio
    interval = f"{ratio.low:.3f} to {ratio.high:.3f}"
    control = row.judged.control.middle
    return f"| {row.cell} | {base} | {head} | {ratio.middle:.3f} | {interval} | {control:.3f} | {row.verdict} |"


def machine():
    return f"{platform.node() or 'unnamed'}, {platform.system()} {platform.machine()}, {processor()}"


def processor():
    """Return the model of the processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or "unknown processor"
