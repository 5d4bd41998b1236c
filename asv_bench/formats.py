"""How figures look in tables and sentences, and how tables look in Markdown and in reStructuredText."""

from cells import SHOWN

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
PACKAGES = {"dask topk": "dask", "faiss flat": "faiss-cpu", "faiss sq8": "faiss-cpu"}  # if their names differ


def number(value, digits=SHOWN):
    """Return a figure with three digits, or as many as are given."""
    rounded = float(f"{value:.{digits}g}")
    return f"{rounded:,.{max(0, digits - 1 - exponent(rounded))}f}"


def exponent(value):
    return int(f"{value:e}".partition("e")[2])


def ratio(value):
    """Return a ratio with two digits, or with all digits before the point: 3.8x, 46x, 165x."""
    return f"{number(value, 2) if value < 100 else f'{value:,.0f}'}x"


def named(contender, cell):
    """Return a contender with its version."""
    name, version = NAMES.get(contender, contender), cell.versions.get(PACKAGES.get(contender, contender))
    return name if version is None or contender == "dmlcpu" else f"{name} {short(version)}"


def short(version):
    """Return a version's first numbers."""
    return ".".join(version.split("+")[0].split(".")[:2])


def circumstances(used, figures):
    """Return the machine and the days of some cells, and what their figures are."""
    first, days = used[0], sorted({cell.date for cell in used})
    when = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    return f"{first.machine['cpu']}, {first.threads} threads, {when}: {figures}"


def restructured(title, head, rows):
    """Return a list-table. The first column is wide if its texts are long."""
    first = "40" if max(len(row[0]) for row in rows) > 15 else "15"
    widths = " ".join([first, *(["15"] * (len(head) - 1))])
    lines = [f".. list-table:: {title}", "   :header-rows: 1", f"   :widths: {widths}", ""]
    for row in (head, *rows):
        lines += [f"   {'  ' if i else '* '}- {cell}".rstrip() for i, cell in enumerate(row)]
    return "\n".join(lines) + "\n"


def markdown(title, head, rows):
    """Return a Markdown table, and its title below."""
    lines = [f"| {' | '.join(row)} |".replace("``", "`") for row in (head, ["---"] * len(head), *rows)]
    return "\n".join([*lines, "", f"{title}."]) + "\n"
