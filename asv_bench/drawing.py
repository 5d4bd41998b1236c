"""Charts as SVG files, light and dark, which are the same for the same data: no date, no random names, no digits of
rounding. Contenders are told apart by marks and hatches, too. Text stays text.
"""

import contextlib

import matplotlib as mpl

mpl.use("svg")
import matplotlib.pyplot as plt

INK = {"light": "#1f2328", "dark": "#e6edf3"}
PALE = {"light": "#8b949e", "dark": "#7d8590"}
COLOURS = {
    "dmlcpu": {"light": "#0550ae", "dark": "#79c0ff"},
    "numpy": {"light": "#8250df", "dark": "#d2a8ff"},
    "onnxruntime": {"light": "#bc4c00", "dark": "#ffa657"},
    "torch": {"light": "#1a7f37", "dark": "#7ee787"},
}
MARKS = {"dmlcpu": "D", "numpy": "o", "onnxruntime": "s", "torch": "^"}
LINES = {"dmlcpu": "-", "numpy": ":", "onnxruntime": "--", "torch": "-."}
NAMES = {"dmlcpu": "dmlcpu", "numpy": "NumPy", "onnxruntime": "ONNX Runtime", "torch": "PyTorch"}


def family(contender):
    """Return the library that a contender is of: "dmlcpu compiled" is of dmlcpu."""
    return contender.split()[0]


def look(contender, mode):
    """Return the colour, the mark and the line of a contender."""
    library = family(contender)
    return {"color": COLOURS[library][mode], "marker": MARKS[library], "linestyle": LINES[library]}


@contextlib.contextmanager
def styled(mode):
    """Let charts have the colours of a mode."""
    ink = INK[mode]
    settings = {
        "svg.hashsalt": "dmlcpu",
        "svg.fonttype": "none",
        "font.family": "sans-serif",
        "font.sans-serif": ["DejaVu Sans"],
        "font.size": 10,
        "text.color": ink,
        "axes.labelcolor": ink,
        "axes.edgecolor": PALE[mode],
        "axes.spines.top": False,
        "axes.spines.right": False,
        "xtick.color": ink,
        "ytick.color": ink,
        "grid.color": PALE[mode],
        "grid.linewidth": 0.4,
        "legend.frameon": False,
        "hatch.linewidth": 0.6,
    }
    with mpl.rc_context(settings):
        yield


def save(draw, path, digest, size):
    """Draw a chart in both modes: to path, and to the same name with -dark. `draw` gets axes and a mode."""
    path.parent.mkdir(parents=True, exist_ok=True)
    for mode, file in (("light", path), ("dark", dark(path))):
        with styled(mode):
            figure, axes = plt.subplots(figsize=size, layout="constrained")
            draw(axes, mode)
            metadata = {"Date": None, "Creator": None, "Description": digest}
            figure.savefig(file, format="svg", transparent=True, metadata=metadata)
            plt.close(figure)


def dark(path):
    return path.with_stem(f"{path.stem}-dark")


def images(path, folder, words):
    """Return the lines of a page that show a chart in the reader's mode. `folder` is the page's."""
    lines = []
    for file, mode in ((path, "light"), (dark(path), "dark")):
        name = "/" + file.relative_to(folder).as_posix()
        lines += [f".. image:: {name}", f"   :class: only-{mode}", "   :width: 100%", f"   :alt: {words}", ""]
    return lines
