"""What changed between two commits, and which cases are timed for it."""

import ast
import fnmatch
import json
import subprocess
from pathlib import Path

MAP = Path(__file__).parents[1] / "module-map.json"
PACKAGE = "dmlcpu/"
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


class GateError(Exception):
    """The gate cannot judge; the message says why."""


def git(repository, *arguments):
    """Return what git prints, as bytes."""
    done = subprocess.run(["git", "-C", str(repository), *arguments], capture_output=True, check=False)
    if done.returncode:
        raise GateError(f"git {' '.join(arguments)}: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout


def commit_of(repository, name):
    """Return the hash of a commit."""
    try:
        return git(repository, "rev-parse", "--verify", "--end-of-options", f"{name}^{{commit}}").decode().strip()
    except GateError:
        raise GateError(f"{name!r} is no commit of this repository") from None


def touched(repository, base, head):
    """Return the files of the package whose code differs: comments, docstrings and formatting do not count."""
    # Without renames, both names of a renamed file are listed.
    listed = git(repository, "diff", "--name-only", "--no-renames", "-z", base, head).decode().split("\0")
    names = [name for name in listed if name.startswith(PACKAGE)]
    return [name for name in names if not same_code(*(_source(repository, commit, name) for commit in (base, head)))]


def _source(repository, commit, name):
    """Return a Python file of a commit; None if it is not there, or is no Python file."""
    if not name.endswith(".py") or not git(repository, "ls-tree", "--name-only", commit, "--", name):
        return None
    return git(repository, "show", f"{commit}:{name}")


def same_code(one, other):
    """Return whether two sources differ in nothing but comments, docstrings and formatting. None: no source."""
    if one is None or other is None:
        return False
    try:
        return _code(one) == _code(other)
    except (SyntaxError, ValueError):
        return False


def _code(source):
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, _DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            del node.body[0]
    return ast.dump(tree)


def read_map():
    return json.loads(MAP.read_text("utf-8"))


def groups_of(name, module_map):
    """Return the groups of cases that a file matters to, by the longest pattern; None if no pattern is for it."""
    patterns = [pattern for pattern in module_map["files"] if fnmatch.fnmatchcase(name, pattern)]
    if not patterns:
        return None
    found = module_map["files"][max(patterns, key=len)]
    return list(module_map["groups"]) if found == ["all"] else found


def groups_to_time(names, module_map):
    """Return the groups of cases that are timed for files that changed: all groups for a file that the map lacks."""
    found = [groups_of(name, module_map) for name in names]
    if None in found:
        return list(module_map["groups"])
    return [group for group in module_map["groups"] if any(group in groups for groups in found)]
