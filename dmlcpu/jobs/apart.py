"""Jobs are kept apart: no two have the same id or output, and no output is an input."""

import contextlib
import functools
import os
import unicodedata
from array import array
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from dmlcpu.errors import DmlError
from dmlcpu.files.formats import WHOLE
from dmlcpu.files.remote import base_of, is_remote, local
from dmlcpu.files.targets import stray
from dmlcpu.jobs.job import Task, files_of
from dmlcpu.jobs.operations import is_path, operation_of
from dmlcpu.jobs.packed import Tasks


class Apart:
    """What jobs read and write, and their ids, as hashes of eight bytes. Possible duplicates are compared as text."""

    def __init__(self, tasks: Tasks, directory: Path) -> None:
        self._tasks = tasks
        self._directory = directory
        self.here = os.path.realpath(directory)
        self._folder = functools.cache(lambda folder: os.path.realpath(os.path.join(directory, folder)))
        self._is_blind = functools.cache(is_case_blind)
        ids, targets, inputs, around = (array("q") for _ in range(4))
        searched = filter(os.path.isdir, map(self._name, filter(is_path, tasks.ops)))
        indices = {*searched, *map(self._name, tasks.built)}
        # Other folders than those whose names say that they are one.
        self._indices = [each + os.sep for each in indices if Path(each).suffix.lower() not in WHOLE]
        self._folders: set[str] = set()  # of targets
        folders: set[int] = set()  # of targets in folders that are one: these are parts of them
        for task in tasks:
            ids.append(hash(task.id))
            for path in task.job.targets if task.job else ():
                found = self.found(path)
                self._folders.add(os.path.dirname(found))
                targets.append(hash(file := self._folded(found)))
                folders.update(map(hash, self._around(file)))
            for file, _ in self._inputs_of(task):
                inputs.append(hash(file))
                around.extend(map(hash, self._around(file)))
        self._inputs, self._targets = np.asarray(inputs), np.asarray(targets)
        read = np.concatenate((self._inputs, around))
        self._suspects = {*_repeated(self._targets), *np.intersect1d(self._targets, read).tolist(), *folders}
        self._ids = _repeated(ids)

    def _name(self, path: str) -> str:
        """Return the one name of a file, however a job spells it: through links, with `..`, or in capitals."""
        return self._folded(self.found(path))

    def _folded(self, file: str) -> str:
        """Return one form for all names that mean the same file on this file system."""
        if is_remote(file) or not self._is_blind(os.path.dirname(file)):
            return file
        if os.name == "nt":  # which compares letter by letter
            return "".join(each.upper() if len(each.upper()) == 1 else each for each in file)
        return unicodedata.normalize("NFC", unicodedata.normalize("NFD", file).casefold())

    def found(self, path: str) -> str:
        """Return where a file is, through links."""
        if ":" in path:  # it may be a URL
            path = base_of(path)
            if is_remote(path):
                return path
            path = local(path)
        folder, name = os.path.split(path)
        if name in ("", ".", ".."):
            return self._folder(path)
        file = os.path.join(self._folder(folder), name)
        return os.path.realpath(file) if os.path.islink(file) else file

    def _around(self, file: str) -> Iterator[str]:
        """Yield the folders around a file that are read and replaced as one: by their suffixes, or as a job says."""
        yield from (each.removesuffix(os.sep) for each in self._indices if file.startswith(each))
        if any(suffix + os.sep in file.lower() for suffix in WHOLE):
            yield from (str(each) for each in Path(file).parents if each.suffix.lower() in WHOLE)

    def _inputs_of(self, task: Task) -> Iterator[tuple[str, str]]:
        """Yield the files that a job reads, each with the place that names it."""
        if task.job is None:
            return
        is_command = task.options is not None
        for path in files_of(task.job):
            yield self._name(path), "of this command" if is_command else f"at {task.where}"
        if is_path(task.job.op):
            with contextlib.suppress(OSError, DmlError, ImportError):  # the check of the job notes them
                for each in operation_of(task.job.op, self._directory).files:
                    where = "of this command" if is_command else f"at the op {task.job.op}"
                    yield self._name(os.fspath(each.absolute())), where

    def uses(self, path: str | os.PathLike[str]) -> bool:
        """Return whether a job reads or writes a file, or a folder around it as one."""
        file = self._name(os.fspath(Path(path).absolute()))  # not abspath: `..` after a link leads elsewhere
        hashes = [*map(hash, (file, *self._around(file)))]
        return bool(np.isin(hashes, self._inputs).any() or np.isin(hashes, self._targets).any())

    def strays(self) -> list[Path]:
        """Return what killed runs have left of targets, also of finished jobs: another worker did them."""
        return stray(self._folders, lambda file: bool((self._targets == hash(self._folded(file))).any()))

    def checked(self) -> Iterator[Task]:
        """Yield the tasks, and forget them; without the job if its id is a duplicate. Conflicts are noted as errors."""
        inputs: dict[str, str] = {}
        around: set[str] = set()
        written: set[str] = set()
        for task in self._tasks if self._suspects else ():
            for file, where in self._inputs_of(task):
                around.update(self._around(file))
                if hash(file) in self._suspects:
                    inputs[file] = where
            files = map(self._name, task.job.targets if task.job else ())
            written.update(file for file in files if hash(file) in self._suspects)
        targets: dict[str, Task] = {}
        ids: dict[str, Task] = {}
        for task in self._tasks.taken():
            for path in task.job.targets if task.job and self._suspects else ():
                file = self._name(path)
                if file in inputs:
                    task.refuse("output", f"{path!r}, an input {inputs[file]}", "a file that no job reads")
                if file in targets:
                    task.refuse("output", *_twice(path, task, targets[file], "another file"))
                if file in written:
                    targets.setdefault(file, task)
                # A file in such a folder is a part of it: replacing the folder removes the file.
                if any(folder in inputs or folder in written for folder in self._around(file)):
                    task.refuse("output", f"{path!r}, within an input or an output", "a file outside of it")
                if file in around:
                    task.refuse("output", f"{path!r}, which an input is within", "a folder without inputs")
            again = task.job is not None and task.id in ids
            if again and not task.errors:
                task.refuse("id", *_twice(task.id, task, ids[task.id], "a unique id; by default it is the output"))
            if hash(task.id) in self._ids:
                ids.setdefault(task.id, task)
            yield replace(task, job=None) if again else task


def is_case_blind(folder: str) -> bool:
    """Return whether a folder ignores the case of names; its parent decides if it has no names with letters."""
    with contextlib.suppress(OSError):
        with os.scandir(folder) as entries:
            name = next((each.name for each in entries if each.name.swapcase() != each.name), None)
        if name is not None:
            one, other = (os.path.join(folder, each) for each in (name, name.swapcase()))
            return os.path.lexists(other) and os.path.samestat(os.lstat(one), os.lstat(other))
    around = os.path.dirname(folder)
    return around != folder and is_case_blind(around)


def _repeated(hashes: Any) -> set[int]:
    ordered = np.sort(hashes)
    return set(ordered[1:][ordered[1:] == ordered[:-1]].tolist())


def _twice(text: str, task: Task, other: Task, allowed: str) -> tuple[str, str]:
    """Return what is wrong if two jobs share an output or an id. Jobs from the same line differ in their files."""
    inputs = [each.job.inputs[""].spelled for each in (other, task) if each.job and "" in each.job.inputs]
    if len(inputs) < 2 or task.where != other.where:
        return f"{text!r}, as at {other.where}", allowed
    return f"{text!r} for {inputs[0]!r} and for {inputs[1]!r}", "a text with {path} or {number}, which differ"
