"""Everything that the documentation shows is run: pages, docstrings, the README, and sessions of the command line."""

import contextlib
import doctest
import importlib
import inspect
import io
import re
import shlex
import shutil
from pathlib import Path

import pytest

import dmlcpu
from dmlcpu.cli import main
from dmlcpu.runtime import threads

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PACKAGE = Path(dmlcpu.__file__).parent
README = ROOT / "README.md"
FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS

# What a page's examples need that the tests' own requirements do not bring.
NEEDED = {"other_arrays.rst": "torch"}

FENCED = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
CONSOLE = re.compile(r"^\.\. code-block:: console\n\n((?:   .*\n|\n)+)", re.MULTILINE)


def pages():
    return sorted(path for path in DOCS.rglob("*.rst") if "_build" not in path.parts)


def name_of(path):
    return path.relative_to(ROOT).as_posix()


def modules_with_examples():
    files = [path for path in PACKAGE.rglob("*.py") if ">>> " in path.read_text("utf-8")]
    return sorted(".".join(("dmlcpu", *path.relative_to(PACKAGE).with_suffix("").parts)) for path in files)


def public_functions():
    owners = {"dmlcpu": dmlcpu, "dmlcpu.batch": dmlcpu.batch, "dmlcpu.reference": dmlcpu.reference}
    for prefix, owner in owners.items():
        for name in getattr(owner, "__all__", ("top_k", "scatter_nd", "quantized_matmul")):
            if inspect.isfunction(getattr(owner, name)):
                yield f"{prefix}.{name}", getattr(owner, name)


def sessions():
    """Yield the commands that console blocks show with what they print; those shown alone are not run."""
    for block in (found[1] for page in pages() for found in CONSOLE.finditer(page.read_text("utf-8"))):
        for session in re.split(r"^\$ ", inspect.cleandoc(block), flags=re.MULTILINE)[1:]:
            command, _, output = session.partition("\n")
            if command.startswith("dmlcpu ") and output.strip():
                yield command, output


@pytest.fixture(autouse=True)
def _in_a_folder_with_the_examples(tmp_path, monkeypatch):
    """Examples read what the repository has and write where it does no harm; threads are put back."""
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    shutil.copytree(DOCS / "models", tmp_path / "models")
    monkeypatch.chdir(tmp_path)
    with threads.limits(threads.get_num_threads()):
        yield


@pytest.mark.parametrize("page", pages(), ids=name_of)
def test_examples_of_a_page(page):
    if page.name in NEEDED:
        pytest.importorskip(NEEDED[page.name])
    failed, _ = doctest.testfile(str(page), module_relative=False, optionflags=FLAGS, encoding="utf-8")
    assert failed == 0


@pytest.mark.parametrize("module", modules_with_examples())
def test_examples_of_docstrings(module):
    failed, tried = doctest.testmod(importlib.import_module(module), optionflags=FLAGS)
    assert failed == 0
    assert tried > 0


@pytest.mark.parametrize("name", [name for name, _ in public_functions()])
def test_every_public_function_has_an_example(name):
    function = dict(public_functions())[name]
    assert doctest.DocTestFinder(recurse=False).find(function)[0].examples


def test_examples_of_the_readme():
    text = "\n".join(FENCED.findall(README.read_text("utf-8")))
    runner = doctest.DocTestRunner(optionflags=FLAGS)
    failed, tried = runner.run(doctest.DocTestParser().get_doctest(text, {}, README.name, str(README), 0))
    assert failed == 0
    assert tried > 0


@pytest.mark.parametrize(("command", "output"), list(sessions()))
def test_sessions_of_the_command_line(command, output):
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        main(shlex.split(command)[1:])
    assert doctest.OutputChecker().check_output(output, printed.getvalue(), FLAGS), printed.getvalue()


def test_every_public_name_is_in_the_reference():
    text = "\n".join(path.read_text("utf-8") for path in (DOCS / "api").glob("*.rst"))
    described = set(re.findall(r"^\.\. auto\w+:: dmlcpu\.([\w.]+)", text, re.MULTILINE))
    listed = set(re.findall(r"^   ([\w.]+)$", (DOCS / "api" / "index.rst").read_text("utf-8"), re.MULTILINE))
    public = {name for name in dmlcpu.__all__ if not inspect.ismodule(getattr(dmlcpu, name))} - {"__version__"}
    public |= {f"batch.{name}" for name in dmlcpu.batch.__all__}
    assert public <= described
    assert described <= listed
