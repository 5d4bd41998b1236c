"""What the gate times for a change: the comparison of sources, the map of files, the choice of cells."""

import fnmatch
import shutil
import subprocess
from pathlib import Path

import pytest
from asv_files import load

changes, cells = load("gate.changes"), load("gate.cells")
ROOT = Path(__file__).parents[2]
MAP = changes.read_map()
GROUPS = set(MAP["groups"])
TABLES = {name: list(table) for name, table in load("benchmarks.common").TABLES.items()}
SOURCE = b'"""A module."""\n\n\ndef f(x):\n    """Return x."""\n    return x + 1  # one\n'


@pytest.mark.parametrize(
    "other",
    [
        SOURCE.replace(b"# one", b"# the next"),
        SOURCE.replace(b"Return x.", b"Return the next."),
        SOURCE.replace(b'"""A module."""', b""),
        SOURCE.replace(b"x + 1", b"(x\n            + 1)"),
    ],
)
def test_comments_docstrings_and_formatting_are_no_code(other):
    assert other != SOURCE
    assert changes.same_code(SOURCE, other)


@pytest.mark.parametrize(
    "other", [SOURCE.replace(b"x + 1", b"x + 2"), SOURCE.replace(b"(x)", b"(x: int)"), b"def f(:\n", None]
)
def test_all_else_is(other):
    assert not changes.same_code(SOURCE, other)
    assert not changes.same_code(other, SOURCE)


def test_a_string_that_is_no_docstring_is_code():
    assert not changes.same_code(b"x = 'a'\n", b"x = 'b'\n")


@pytest.fixture
def repository(tmp_path):
    """Return the folder of a repository, and a function that commits files and returns the hash."""
    if shutil.which("git") is None:
        pytest.skip("git is not installed")

    def git(*arguments):
        identity = ["-c", "user.name=tests", "-c", "user.email=tests@example.com"]
        return subprocess.run(["git", *identity, *arguments], cwd=tmp_path, check=True, capture_output=True, text=True)

    def commit(**files):
        for name, content in files.items():
            path = tmp_path / name.replace("__", "/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        git("add", "-A")
        git("commit", "--quiet", "--message", "a change")
        return git("rev-parse", "HEAD").stdout.strip()

    git("init", "--quiet")
    return tmp_path, commit


def test_touched_files_are_those_of_the_package_whose_code_differs(repository):
    folder, commit = repository
    files = {"dmlcpu__a.py": SOURCE, "dmlcpu__b.py": SOURCE, "dmlcpu__c.json": b"{}", "docs__d.rst": b"D"}
    base = commit(**files)
    comment = commit(**{"dmlcpu__a.py": SOURCE + b"# more\n", "docs__d.rst": b"E", "tests__e.py": b"x = 1\n"})
    assert changes.touched(folder, base, comment) == []
    head = commit(**{"dmlcpu__b.py": SOURCE + b"x = 1\n", "dmlcpu__c.json": b"[]", "dmlcpu__new.py": b"# new\n"})
    assert changes.touched(folder, base, head) == ["dmlcpu/b.py", "dmlcpu/c.json", "dmlcpu/new.py"]
    (folder / "dmlcpu/a.py").rename(folder / "dmlcpu/renamed.py")
    assert changes.touched(folder, head, commit()) == ["dmlcpu/a.py", "dmlcpu/renamed.py"]


def test_a_commit_that_does_not_exist_is_named(repository):
    folder, commit = repository
    head = commit(a=b"1")
    assert changes.commit_of(folder, "HEAD") == head
    with pytest.raises(changes.GateError, match=r"^'nosuch' is no commit of this repository$"):
        changes.commit_of(folder, "nosuch")


def test_the_map_has_every_file():
    files = [path.relative_to(ROOT).as_posix() for path in (ROOT / "dmlcpu").rglob("*") if path.is_file()]
    files = [name for name in files if "__pycache__" not in name]
    assert "dmlcpu/at.py" in files
    unknown = [name for name in files if changes.groups_of(name, MAP) is None]
    assert not unknown, f"asv_bench/module-map.json says nothing about {', '.join(unknown)}"


def test_every_pattern_of_the_map_is_for_a_file_and_names_groups():
    files = [path.relative_to(ROOT).as_posix() for path in (ROOT / "dmlcpu").rglob("*")]
    for pattern, groups in MAP["files"].items():
        assert any(fnmatch.fnmatchcase(name, pattern) for name in files), pattern
        assert set(groups) <= {*GROUPS, "all"}, pattern


def test_every_table_is_in_a_group_and_every_text_finds_a_case():
    assert set(TABLES) == {table for texts in MAP["groups"].values() for table in texts}
    for texts in MAP["groups"].values():
        for table, text in texts.items():
            assert any(text in name for name in TABLES[table]), (table, text)


def test_the_representatives_are_cases_and_few():
    for table, names in MAP["representatives"].items():
        assert set(names) <= set(TABLES[table])
        assert len(names) <= cells.PER_TABLE


def test_the_longest_pattern_counts():
    assert changes.groups_of("dmlcpu/kernels/half.py", MAP) == list(MAP["groups"])
    assert changes.groups_of("dmlcpu/kernels/top_k/keys.py", MAP) == ["top_k", "matmul_top_k", "sort"]
    assert changes.groups_of("dmlcpu/kernels/selection/finish.py", MAP) == ["matmul_top_k"]
    assert changes.groups_of("dmlcpu/cli/run.py", MAP) == []


def test_files_that_the_map_lacks_have_everything_timed():
    assert changes.groups_of("dmlcpu/operators/nosuch/plan.py", MAP) is None
    assert changes.groups_to_time(["dmlcpu/operators/nosuch/plan.py"], MAP) == list(MAP["groups"])
    assert changes.groups_to_time(["dmlcpu/cli/run.py"], MAP) == []
    assert changes.groups_to_time(["dmlcpu/at.py", "dmlcpu/operators/top_k/plan.py"], MAP) == ["top_k", "at"]


def chosen(groups, **options):
    return cells.choose(TABLES, MAP, groups, **options)


def test_cells_are_those_of_the_groups_and_no_call_is_timed_twice():
    found = chosen(["top_k"])
    tiny = [cell.implementation for cell in found if cell.table == "tiny"]
    assert tiny == ["dmlcpu", "dmlcpu bound", "dmlcpu compiled"]
    assert {cell.table for cell in found} == {"top_k", "top_k_types", "torch", "threads", "tiny"}
    assert all(" k " in cell.case for cell in found)
    everything = [cell for cell in chosen(list(MAP["groups"])) if cell.table != "tiny"]
    assert len({cell.case for cell in everything}) == len(everything)


def test_text_takes_cases_beyond_the_representatives():
    found = chosen(["top_k"], text="organ pipe")
    assert [str(cell) for cell in found] == ["top_k_data: 1000x10000 k 10 float32 organ pipe"]


def test_limit_and_tables():
    assert len(chosen(["top_k"], limit=2, only_tables=["top_k"])) == 2


def test_a_table_that_the_map_lacks_gives_its_first_cases():
    found = cells.choose({"nosuch": [str(number) for number in range(20)]}, MAP, ["at"])
    assert [cell.case for cell in found] == [str(number) for number in range(cells.PER_TABLE)]
