"""Charts as light and dark SVG files. The same data give the same files, without dates and random names. Contenders
differ in marks and lines as well as in colours. Text remains text.
"""

import contextlib
import hashlib
import inspect
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("svg")
import matplotlib.pyplot as plt
from matplotlib.ticker import LogLocator, NullFormatter

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

    path: Path  # of the light one; the dark one is in the same folder
    words: str  # what it shows, for those who do not see it
    made_of: Any  # its data, as JSON can hold them
    draw_on: Callable[[Any, str], None]
    size: tuple[float, float]
    panels: tuple[int, int] = (1, 1)

    @property
    def digest(self):
        """What the chart is made of: its data, and the code that draws it."""
        code = [Path(inspect.getfile(each)).read_text("utf-8") for each in (Chart, self.draw_on)]
        text = json.dumps([self.words, self.made_of, self.size, code], sort_keys=True)
        return f"made of {hashlib.sha256(text.encode()).hexdigest()[:16]}"

    def is_drawn(self):
        """Whether both files exist and are drawn from these data."""
        files = (self.path, dark(self.path))
        return all(file.is_file() and self.digest in file.read_text("utf-8") for file in files)

    def draw(self):
        """Write both files."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        for mode, file in (("light", self.path), ("dark", dark(self.path))):
            with styled(mode):
                figure, axes = plt.subplots(*self.panels, figsize=self.size, layout="constrained")
                self.draw_on(axes, mode)
                metadata = {"Date": None, "Creator": None, "Description": self.digest}
                figure.savefig(file, format="svg", transparent=True, metadata=metadata)
                plt.close(figure)


def plain_ticks(axis):
    """Label a logarithmic axis with plain numbers: 1, 2, 5, 10."""
    axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter(lambda value, _: f"{value:g}")
    axis.set_minor_formatter(NullFormatter())


def dark(path):
    return path.with_stem(f"{path.stem}-dark")


def images(path, folder, words):
    """Return the lines of a page that show a chart in the reader's mode. `folder` is the page's."""
    lines = []
    for file, mode in ((path, "light"), (dark(path), "dark")):
        name = "/" + file.relative_to(folder).as_posix()
        lines += [f".. image:: {name}", f"   :class: only-{mode}", "   :width: 100%", f"   :alt: {words}", ""]
    return lines
