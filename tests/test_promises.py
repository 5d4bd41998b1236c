"""The tests that documents and scripts name are there, and the table of versions has the sessions of noxfile.py."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TEST = re.compile(r"(tests/[\w/]+\.py)::(\w+)")


def assigned(name):
    """Return a constant of noxfile.py, which imports nox."""
    for node in ast.parse((ROOT / "noxfile.py").read_text("utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
            return ast.literal_eval(node.value)
    raise LookupError(name)


@pytest.mark.parametrize("page", ["docs/promises.rst", "SECURITY.md"])
def test_tests_that_a_page_names_are_there(page):
    named = TEST.findall((ROOT / page).read_text("utf-8"))
    assert named
    for file, name in named:
        functions = [node.name for node in ast.parse((ROOT / file).read_text("utf-8")).body if hasattr(node, "name")]
        assert name in functions, f"{file}::{name}"


SCRIPTS = ["noxfile.py", ".ci/run", ".ci/packages", ".ci/arm64", "CONTRIBUTING.md", "docs/testing.rst"]


@pytest.mark.parametrize("script", SCRIPTS)
def test_files_of_tests_that_a_script_names_are_there(script):
    """pytest runs no test at all if one of its files is missing."""
    named = re.findall(r"\btests/[\w./{},]*[\w/]", (ROOT / script).read_text("utf-8"))
    assert named
    for each in named:
        before, _, rest = each.partition("{")
        names, _, after = rest.partition("}")
        for name in names.split(","):
            assert (ROOT / f"{before}{name}{after}").exists()


def test_every_promise_names_a_test():
    page = (ROOT / "docs" / "promises.rst").read_text("utf-8")
    promises = re.findall(r"^\w.*\n((?:   \| .*\n)+)", page, re.MULTILINE)
    assert len(promises) > 20
    assert all(TEST.search(tests) for tests in promises)


def test_table_of_versions_has_every_session_of_nox():
    page = (ROOT / "docs" / "versions.rst").read_text("utf-8")
    rows = [re.findall(r"- +(.*)", row) for row in re.split(r"^   \* ", page, flags=re.MULTILINE)[1:]]
    found = [(*(".".join(each.split(".")[:2]) for each in row[:3]), row[3]) for row in rows if row[0][0].isdigit()]
    newest = assigned("NEWEST")
    assert found == [(*each, "none") for each in assigned("VERSIONS")] + [
        (*newest, f"``{name}={value}``") for setting in assigned("SETTINGS").values() for name, value in setting.items()
    ]
