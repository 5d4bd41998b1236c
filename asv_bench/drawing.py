"""Charts as light and dark SVG files. The same data give the same files, without dates and random names. Contenders
differ in marks and lines as well as in colours. Text remains text.
"""

import contextlib
import hashlib
import inspect
import json
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("svg")
import matplotlib.pyplot as plt
from matplotlib.ticker import LogLocator, NullFormatter

NARROW = 3.75  # inches, or 360 CSS pixels: a telephone's width
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
    """Return the library of a contender: dmlcpu for "dmlcpu compiled"."""
    return contender.split()[0]


def look(contender, mode):
    """Return the colour, the mark and the line of a contender."""
    library = family(contender)
    return {"color": COLOURS[library][mode], "marker": MARKS[library], "linestyle": LINES[library]}


@contextlib.contextmanager
def styled(mode):
    """Draw charts in the colours of a mode."""
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


@dataclass
class Chart:
    """A chart, and what it is made of. `draw_on` gets its axes (an array of them, if it has several) and a mode."""

    path: Path  # of the light and wide form; the others are in the same folder
    words: str  # what it shows, for those who do not see it
    made_of: Any  # its data, as JSON can hold them
    draw_on: Callable[[Any, str], None]
    size: tuple[float, float]
    panels: tuple[int, int] = (1, 1)
    narrow: tuple[float, int] = (3.5, 1)  # the height, and how many panels are below one another, in the narrow forms

    @property
    def digest(self):
        """What the chart is made of: its data, and the code that draws it."""
        code = [Path(inspect.getfile(each)).read_text("utf-8") for each in (Chart, self.draw_on)]
        text = json.dumps([self.words, self.made_of, self.size, self.narrow, code], sort_keys=True)
        return f"made of {hashlib.sha256(text.encode()).hexdigest()[:16]}"

    @property
    def forms(self):
        """The file of each form, with its mode, size and panels."""
        narrow = self.path.with_stem(f"{self.path.stem}-narrow")
        height, count = self.narrow
        for path, *shape in ((self.path, self.size, self.panels), (narrow, (NARROW, height), (count, 1))):
            yield path, "light", *shape
            yield path.with_stem(f"{path.stem}-dark"), "dark", *shape

    def is_drawn(self):
        """Whether all files exist and are drawn from these data."""
        files = [path for path, *_ in self.forms]
        return all(file.is_file() and self.digest in file.read_text("utf-8") for file in files)

    def draw(self):
        """Write all files."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        for file, mode, size, panels in self.forms:
            with styled(mode):
                figure, axes = plt.subplots(*panels, figsize=size, layout="constrained")
                self.draw_on(axes, mode)
                for each in figure.axes:
                    each.xaxis.label.set_text(cut(each, each.get_xlabel()))
                metadata = {"Date": None, "Creator": None, "Description": self.digest}
                figure.savefig(file, format="svg", transparent=True, metadata=metadata)
                plt.close(figure)


def plain_ticks(axis):
    """Label a logarithmic axis with plain numbers: 1, 2, 5, 10."""
    axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter(lambda value, _: f"{value:g}")
    axis.set_minor_formatter(NullFormatter())


def is_narrow(axes):
    """Return whether axes are those of a narrow form."""
    return axes.figure.get_figwidth() == NARROW


def name_rows(axes, places, labels):
    """Write labels at the left of rows, in the narrow form above them."""
    if not is_narrow(axes):
        axes.set_yticks(places, labels)
        return
    axes.set_yticks([])
    for place, label in zip(places, labels, strict=True):
        where = {"xycoords": ("axes fraction", "data"), "xytext": (4, 9), "textcoords": "offset points"}
        axes.annotate(label, (0, place), **where, fontsize=9, va="bottom")


def cut(axes, text):
    """Return a text in lines that fit."""
    return textwrap.fill(text, 40) if is_narrow(axes) else text


def images(path, folder, words):
    """Return the lines of a page that show a chart. `folder` is that of the pages."""
    return [f".. chart:: /{path.relative_to(folder).as_posix()}", f"   :alt: {words}", ""]
