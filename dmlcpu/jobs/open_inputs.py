"""A job's arguments: its open files, and the values that it gives."""

import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dmlcpu.common.arguments import Array
from dmlcpu.common.imports import MissingExtraError
from dmlcpu.common.regions import Region
from dmlcpu.files import FileError, FileSource, Identity, identity, open_source
from dmlcpu.files.remote import located
from dmlcpu.jobs.faults import Place
from dmlcpu.jobs.job import FileInput, Job
from dmlcpu.jobs.limits import size
from dmlcpu.jobs.operations import Operation

OnRead = Callable[[int], None]  # called by any thread with a number of bytes that a job in blocks has read


class JobError(Exception):
    """A job has failed, for a reason in words."""


@dataclass(slots=True)
class OpenArguments:
    """The arguments of a job: open files for the operation's sources, all others in memory."""

    values: dict[str, Any]
    sources: dict[str, FileSource] = field(default_factory=dict)
    paths: dict[str, str] = field(default_factory=dict)  # of the sources
    missing_chunks: dict[str, int | None] = field(default_factory=dict)  # of files that lack any, if they are counted
    identities: dict[str, Identity] = field(default_factory=dict)  # of files of this machine, if no place is given

    def close(self) -> None:
        """Close the files."""
        for source in self.sources.values():
            source.close()

    def in_memory(self) -> dict[str, Any]:
        """Return all arguments, sources read as a whole."""
        return {**self.values, **{name: self._read(name) for name in self.sources}}

    def for_blocks(self, on_read: OnRead) -> dict[str, Any]:
        """Return all arguments: files that can be read in regions stay open, the others are read."""
        in_regions = {name: _CountedSource(each, on_read) for name, each in self.sources.items() if each.in_regions}
        others = {name: self._read(name) for name in self.sources if name not in in_regions}
        return {**self.values, **in_regions, **others}

    def _read(self, name: str) -> Array:
        try:
            return self.sources[name].read()
        except (OSError, FileError) as error:
            raise input_error(name, self.paths[name], error) from error


class _CountedSource:
    """A source that reports how many of its bytes have been read, each byte once."""

    def __init__(self, source: FileSource, on_read: OnRead) -> None:
        self.shape, self.dtype = source.shape, source.dtype
        self._source, self._on_read = source, on_read
        self._left = source.nbytes
        self._counting = threading.Lock()

    def read(self, region: Region | None = None, into: Array | None = None) -> Array:
        """Return the elements of a region."""
        array = self._source.read(region, into)
        with self._counting:
            new = min(array.nbytes, self._left)
            self._left -= new
        self._on_read(new)
        return array


def named_inputs(job: Job, operation: Operation) -> Mapping[str, FileInput]:
    """Return a job's files by the arguments' names; a glob's file is the first argument, unless that is given."""
    named = {name: each for name, each in job.inputs.items() if name}
    if "" in job.inputs and operation.first and operation.first not in {*named, *job.attrs}:
        named[operation.first] = job.inputs[""]
    return named


def open_arguments(
    job: Job,
    operation: Operation,
    directory: Path,
    place: Place | None = None,
    *,
    memory: int = sys.maxsize,
    count_chunks: bool = False,
) -> OpenArguments:
    """Open a job's files, and read those that the operation needs whole. With a place, errors are noted in it."""
    opened = OpenArguments({**operation.defaults, **job.attrs})
    for name, each in named_inputs(job, operation).items():
        try:
            source = open_source(located(directory, each.path), each.name, each.dtype)
            if place is None and (
                state := identity(source.folder, content=False) if source.folder else source.identity()
            ):
                opened.identities[each.path] = state
            if count_chunks and (missing := source.missing_chunks()) != 0:
                opened.missing_chunks[name] = missing
            if name in operation.sources:
                opened.sources[name], opened.paths[name] = source, each.path
                continue
            with source:
                if source.nbytes > memory:
                    found = f"{size(source.nbytes)}, which are read whole"
                    raise FileError(found, f"{size(memory)} (what is left of the maximal memory)")
                memory -= source.nbytes
                opened.values[name] = source.read()
        except (OSError, FileError, MissingExtraError) as error:
            if place is None:
                opened.close()
                raise input_error(name, each.path, error) from error
            place.refuse(f"inputs.{name}", *found_and_allowed(each.path, error))
    return opened


def input_error(name: str, path: str, error: Exception) -> JobError:
    """Return the error for an input that was readable when it was checked."""
    found, allowed = found_and_allowed(path, error)
    return JobError(f"inputs.{name}: {found}; allowed: {allowed}")


def found_and_allowed(path: str, error: Exception, allowed: str = "a file that can be read") -> tuple[str, str]:
    """Return what is wrong with a file, and what is allowed."""
    if isinstance(error, FileError):
        return f"{path!r}: {error.found}", error.allowed
    if isinstance(error, FileNotFoundError):
        return f"{path!r}, which does not exist", "a file"
    if isinstance(error, OSError):
        return f"{path!r}: {error.strerror or error}", allowed
    return f"{path!r}: {error}", allowed  # a package is missing
