"""All examples of the documentation run: pages, docstrings, the README, and sessions of the command line."""

import contextlib
import doctest
import importlib
import inspect
import io
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
import tomllib
from collections import Counter
from itertools import chain
from pathlib import Path

import commands
import jinja2
import pytest
from docs_blocks import DOCS, IN_TEXT, ROOT, blocks_of, expanded, name_of, pages, sessions_of
from told import without_compiling

import dmlcpu
from dmlcpu.cli import main
from dmlcpu.directml.enums import FeatureLevel
from dmlcpu.directml.feature_level import FOUR, Allowed, Support, types
from dmlcpu.files import formats
from dmlcpu.operators import OPERATORS
from dmlcpu.runtime import threads

PACKAGE = Path(dmlcpu.__file__).parent
README = ROOT / "README.md"
FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS

COMPILES_FIRST = "are compiled first"  # what commands print on standard error if the cache does not have kernels

# Packages that a page's examples need besides the tests' own requirements.
NEEDED = {
    "coming_from_onnxruntime.rst": "onnxruntime",
    "coming_from_pytorch.rst": "torch",
    "other_arrays.rst": "torch",
    "pytorch.rst": "torch",
    "onnx.rst": "onnx",
    "dxdispatch.rst": "onnx",
    "dask.rst": "dask",
    "embeddings.rst": "wordllama",
    "batch.rst": "distributed",
}

# Pages whose sessions are one story: a shell runs all their commands, in order and in the folder with the page's name.
STORIES = [DOCS / "batch.rst"]
# Sessions that are not run, by their page and first word, and why.
NOT_RUN = {
    ("adding_an_instruction_set.rst", ".ci/arm64"): "needs an emulator and packages of another architecture",
    ("adding_an_operator.rst", "git"): "test_adding_an_operator.py does it",
    ("benchmarks.rst", "asv"): "measures for minutes; test_asv_bench.py has asv find the benchmarks",
    ("benchmarks.rst", "python"): "test_figures.py does it",
    ("environment.rst", "NUMBA_CACHE_DIR=/var/cache/kernels"): "writes to a folder of the system",
    ("history.rst", "python"): "measures for minutes; test_history.py draws",
    ("mlp.rst", "python"): "test_examples.py does it",
    ("performance.rst", "python"): "measures for minutes; test_compare.py times less",
    ("quickstart.rst", "python"): "installs packages, as .ci/run does",
    ("scaling.rst", "python"): "measures for minutes; test_scaling.py times less",
}
# Blocks of these languages are shown, not run: formulas and output, data, and commands of GNU parallel or for the home
# folder.
SHOWN = {"json", "json5", "sh", "text", "toml"}
# Blocks of Python that are no sessions, by their page, and the tests that run them.
RUN_BY_TESTS = dict.fromkeys(("embeddings.rst", "search_adapters.rst"), "tests/search/test_search_packages.py")
HAS_SHELL = os.name == "posix" and all(map(shutil.which, ("bash", "make")))
PORT = "8786"  # replaced by a free port

FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
OF_SPHINX = re.compile(r"\{%|^\.\. auto", re.MULTILINE)  # pages with these say nothing without it
ROLE = re.compile(r":(?!su[bp]:)[a-z]+:`[^`]*`")  # all but those of docutils
FEATURE_LEVELS = re.compile(r"^\.\. feature-levels:: (\w+)$", re.MULTILINE)


def modules_with_examples():
    files = [path for path in PACKAGE.rglob("*.py") if ">>> " in path.read_text("utf-8")]
    return sorted(".".join(("dmlcpu", *path.relative_to(PACKAGE).with_suffix("").parts)) for path in files)


def public_functions():
    owners = {dmlcpu: dmlcpu.__all__, dmlcpu.batch: dmlcpu.batch.__all__, dmlcpu.reference: OPERATORS}
    owners[dmlcpu.search] = dmlcpu.search.__all__
    for owner, names in owners.items():
        for name in names:
            if inspect.isfunction(getattr(owner, name)):
                yield f"{owner.__name__}.{name}", getattr(owner, name)


def is_run(session):
    """Return whether a session is run by itself: it is not in a story, and its commands are dmlcpu's."""
    return session.page not in STORIES and all(command.startswith("dmlcpu ") for command, _ in session.commands)


def sessions_to_run():
    return [session for page in pages() for session in sessions_of(page) if is_run(session)]


@pytest.fixture
def _in_a_folder_with_the_examples(tmp_path, monkeypatch):
    """Run examples in a copy of the repository's files, and restore the number of threads."""
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    for folder in ("models", *(page.stem for page in STORIES)):
        shutil.copytree(DOCS / folder, tmp_path / folder)
    monkeypatch.chdir(tmp_path)
    with threads.use_budget(threads.get_num_threads()):
        yield


runs_examples = pytest.mark.usefixtures("_in_a_folder_with_the_examples")


def examples():
    """Return the pages; that of Numba's callers compiles for many seconds."""
    return [pytest.param(page, marks=[pytest.mark.slow] * (page.name == "numba.rst")) for page in pages()]


@runs_examples
@pytest.mark.parametrize("page", examples(), ids=name_of)
def test_examples_of_a_page(page, monkeypatch):
    if page.name in NEEDED:
        pytest.importorskip(NEEDED[page.name])
    if NEEDED.get(page.name) == "torch":  # a size that is measured on a busy machine may leave a call to PyTorch
        monkeypatch.setattr("dmlcpu.interop.torch.switches.THRESHOLDS.loss", lambda *args, **kwargs: "")
    if page in STORIES:
        os.chdir(page.stem)
    failed, tried = doctest.testfile(str(page), module_relative=False, optionflags=FLAGS, encoding="utf-8")
    assert failed == 0
    assert tried == sum(text.count(">>> ") for language, text in blocks_of(page) if language == "pycon")


@pytest.mark.parametrize("page", pages(), ids=name_of)
def test_every_block_of_a_page_is_run(page):
    languages = Counter(language for language, _ in blocks_of(page))
    examples = doctest.DocTestParser().get_examples(page.read_text("utf-8"))
    assert bool(languages.pop("pycon", 0)) == bool(examples)
    assert languages.pop("console", 0) == len(sessions_of(page))
    assert not languages.pop("python", 0) or page.name in RUN_BY_TESTS
    assert languages.keys() <= SHOWN
    if page not in STORIES:
        for session in sessions_of(page):
            assert is_run(session) or (page.name, session.commands[0][0].split()[0]) in NOT_RUN
    for language, text in blocks_of(page):
        assert language != "json" or json.loads(text)


SHOWN_FILES = {
    "batch.rst": ["jobs.toml", "jobs.jsonl", "wrong.jsonl", "nights.toml", "Snakefile", "models.toml"],
    "dxdispatch.rst": ["../models/pick.json", "../models/pick_onnx.json"],
}


@pytest.mark.parametrize("page", SHOWN_FILES)
def test_files_that_a_page_shows_are_those_that_its_commands_read(page):
    shown = [text.strip() for _, text in blocks_of(DOCS / page)]
    for name in SHOWN_FILES[page]:
        assert (DOCS / "batch" / name).read_text("utf-8").strip() in shown, name


def test_pages_read_well_without_sphinx():
    for page in pages():
        text = page.read_text("utf-8")
        assert OF_SPHINX.search(text) or not ROLE.findall(text), name_of(page)


def test_every_page_for_those_who_come_from_elsewhere_has_examples():
    coming = [page for page in pages() if page.name.startswith("coming_from_")]
    assert len(coming) == 5
    assert all(dict(blocks_of(page)).keys() == {"pycon"} for page in coming)


def test_sessions_that_are_not_run_are_there():
    found = {
        (session.page.name, session.commands[0][0].split()[0]) for page in pages() for session in sessions_of(page)
    }
    assert NOT_RUN.keys() <= found


@runs_examples
@pytest.mark.parametrize("module", modules_with_examples())
def test_examples_of_docstrings(module, monkeypatch):
    if module.startswith("dmlcpu.interop."):
        pytest.importorskip(module.split(".")[2])  # the package that it is for
    if module == "dmlcpu.search.neighbors":
        pytest.importorskip("sklearn")
    loaded = importlib.import_module(module)
    # Classes that are named by their public path: doctest takes them for others'.
    public = {name: each for name, each in vars(loaded).items() if getattr(each, "__module__", "") == "dmlcpu.search"}
    monkeypatch.setattr(loaded, "__test__", public, raising=False)
    failed, tried = doctest.testmod(loaded, optionflags=FLAGS)
    assert failed == 0
    assert tried > 0


@pytest.mark.parametrize("name", [name for name, _ in public_functions()])
def test_every_public_function_has_an_example(name):
    function = dict(public_functions())[name]
    assert doctest.DocTestFinder(recurse=False).find(function)[0].examples


@runs_examples
def test_every_block_of_the_readme_is_run():
    blocks = FENCED.findall(README.read_text("utf-8"))
    assert {language for language, _ in blocks} == {"python", "sh"}  # test_readme.py is about the commands
    python = [text for language, text in blocks if language == "python"]
    runner = doctest.DocTestRunner(optionflags=FLAGS)
    failed, tried = runner.run(doctest.DocTestParser().get_doctest("\n".join(python), {}, README.name, str(README), 0))
    assert failed == 0
    assert tried == sum(text.count(">>> ") for text in python)
    assert all(text.startswith(">>> ") for text in python)


@runs_examples
@pytest.mark.parametrize("session", sessions_to_run(), ids=lambda session: session.commands[0][0])
def test_sessions_of_the_command_line(session, monkeypatch):
    monkeypatch.setattr("dmlcpu.measure.measurement.memory_to_use", lambda: 4 << 20)  # what it prints may be wrong
    for command, output in session.commands:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            main(shlex.split(command)[1:])
            if COMPILES_FIRST in printed.getvalue():  # pages show what is printed from then on
                printed.truncate(printed.seek(0))
                main(shlex.split(command)[1:])
        shown = output.strip()
        found = without_compiling(printed.getvalue())
        assert not shown or doctest.OutputChecker().check_output(output, found, FLAGS), found


def until_it_listens(port):
    """Wait for a process that was started in the background."""
    end = time.monotonic() + 60
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port)).close()
        except ConnectionRefusedError:
            assert time.monotonic() < end
            time.sleep(0.1)


@pytest.fixture
def shell(tmp_path):
    """Run commands as a terminal would, and kill processes that they leave running.

    Where commands can be forked, those that run in the background are processes of their own, and may be killed.
    """
    for kind in ("processes", "forks"):
        (tmp_path / kind).mkdir()
        for name, module in {"dmlcpu": "-m dmlcpu", "dask": "-m dask", "python": ""}.items():
            program = f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {module} "$@"\n'
            is_fork = (kind, name) == ("forks", "dmlcpu") and sys.platform == "linux"
            (tmp_path / kind / name).write_text(commands.CLIENT if is_fork else program)
            (tmp_path / kind / name).chmod(0o755)
    found = {"PYTHONPATH": str(ROOT), "COLUMNS": "80", "COMMANDS": str(tmp_path / "commands")}
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port = str(listening.getsockname()[1])
    started = []

    def run(page, command):
        if PORT in command and "&" not in command:
            until_it_listens(int(port))
        # A new session, so that background processes can be killed; a file, because a pipe would wait for them.
        folder = tmp_path / ("processes" if "&" in command else "forks")
        with (tmp_path / "printed").open("a+") as printed:
            printed.truncate(0)
            process = subprocess.Popen(
                ["bash", "-c", command.replace(PORT, port)],
                cwd=tmp_path / page,
                env={**os.environ, **found, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"},
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            started.append(process.pid)
            end = time.monotonic() + 120
            while process.poll() is None and time.monotonic() < end:
                with contextlib.suppress(TimeoutError):
                    commands.answer(server)
            process.wait(timeout=0)
            printed.seek(0)
            return without_compiling(printed.read()).replace(port, PORT)

    with socket.socket(socket.AF_UNIX) as server:
        server.bind(found["COMMANDS"])
        server.listen()
        server.settimeout(0.02)
        yield run
    for group in started:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)


@pytest.mark.slow
@runs_examples
@pytest.mark.skipif(not HAS_SHELL, reason="no bash, or no make")
@pytest.mark.parametrize("page", STORIES, ids=name_of)
def test_sessions_of_a_story(page, shell):
    if page.name in NEEDED:
        pytest.importorskip(NEEDED[page.name])
    os.chdir(page.stem)
    for command, output in chain.from_iterable(session.commands for session in sessions_of(page)):
        printed = shell(page.stem, command)
        assert doctest.OutputChecker().check_output(output, printed, FLAGS), f"$ {command}\n{printed}"


def test_every_public_name_is_in_the_reference():
    texts = {path.stem: expanded(path.read_text("utf-8")) for path in (DOCS / "api").glob("*.rst")}
    described = set(re.findall(r"^\.\. auto\w+:: dmlcpu\.([\w.]+)", "\n".join(texts.values()), re.MULTILINE))
    listed = set(re.findall(r"^   ([\w.]+)$", texts["index"], re.MULTILINE))
    public = {name for name in dmlcpu.__all__ if not inspect.ismodule(getattr(dmlcpu, name))} - {"__version__"}
    public |= {f"batch.{name}" for name in dmlcpu.batch.__all__}
    public |= {f"search.{name}" for name in dmlcpu.search.__all__}
    public |= {f"reference.{name}" for name in (*OPERATORS, "knn", "exact_knn")}
    assert public <= described
    assert described <= listed


def test_table_of_files_agrees_with_the_formats():
    table = (DOCS / "files.rst").read_text("utf-8").partition("   * - Suffix\n")[2]
    rows = [re.findall(r"- +(.*)", row) for row in re.split(r"^   \* ", table, flags=re.MULTILINE)[1:]]
    found = {row[0].partition(" ")[0].strip("`"): row[1:5] for row in rows}
    assert list(found) == list(formats.SUFFIXES)
    of_one, in_regions = (
        [suffix for suffix, row in found.items() if row[column] == text] for column, text in ((1, "one"), (3, "yes"))
    )
    assert of_one == list(formats.suffixes_where(lambda each: each.holds_one))
    assert in_regions == list(formats.suffixes_where(lambda each: each.create))
    extras = {row[0].strip("`") for row in found.values()} - {"none"}
    assert extras <= set(
        tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    )


@pytest.mark.parametrize("name", OPERATORS)
def test_every_operator_has_a_page_that_shows_its_feature_levels(name):
    page = (DOCS / "operators" / f"{name}.rst").read_text("utf-8")
    assert sorted(FEATURE_LEVELS.findall(page)) == sorted(member.name for member in OPERATORS[name].descs)


def test_the_descriptors_page_shows_all_feature_levels():
    page = expanded((DOCS / "descriptors.rst").read_text("utf-8"))
    assert FEATURE_LEVELS.findall(page) == [member.name for row in OPERATORS.values() for member in row.descs]


def test_templates_expand_for_each_operator():
    page = """\
{% for operator in operators %}
- {{ operator.name }} {{ operator.descs | map("full_name") | join(" ") }}: {{ summary(operator.function) }}
{% endfor %}
"""
    assert expanded(page).splitlines() == [
        f"- {name} {' '.join(f'DML_OPERATOR_{member.name}' for member in row.descs)}: "
        f"{' '.join(row.function.__doc__.partition('.')[0].split())}."
        for name, row in OPERATORS.items()
    ]
    with pytest.raises(jinja2.UndefinedError, match="nosuch"):
        expanded("{{ nosuch }}\n")


def test_a_table_of_feature_levels():
    of = types("INT8 UINT8")
    tensors = {"ATensor": Allowed(FOUR, of), "BTensor": Allowed(FOUR, of), "CTensor": Allowed(FOUR, of, required=True)}
    later = {name: Allowed(range(1, 9), of) for name in tensors}
    levels = (Support(FeatureLevel.LEVEL_2_1, tensors), Support(FeatureLevel.LEVEL_4_0, later))
    rows = IN_TEXT["table_of_levels"](levels).partition("   * - From level")[2].split("   * - ")[1:]
    assert [[cell.strip() for cell in row.split("     - ")] for row in rows] == [
        ["``2_1``", "ATensor, BTensor", "4", "INT8, UINT8"],
        ["``2_1``", "CTensor (required)", "4", "INT8, UINT8"],
        ["``4_0``", "ATensor, BTensor, CTensor", "1 to 8", "INT8, UINT8"],
    ]
