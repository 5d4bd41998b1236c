"""Checking jobs before anything runs: every error of every job is noted, and each valid job becomes a task."""

import contextlib
import functools
import os
import re
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from dmlcpu.common.faults import listed
from dmlcpu.common.imports import MissingExtraError
from dmlcpu.common.regions import Estimate, Tensor
from dmlcpu.errors import DmlError
from dmlcpu.files import FileError, Identity, check_target
from dmlcpu.files.base import Format
from dmlcpu.files.formats import known, suffixes_where
from dmlcpu.files.targets import LONGER, existing, folder_error
from dmlcpu.files.web import RemoteError, in_time, patience
from dmlcpu.jobs.apart import Apart
from dmlcpu.jobs.faults import Place
from dmlcpu.jobs.job import Job, Task, Work, identities
from dmlcpu.jobs.limits import Settings, size
from dmlcpu.jobs.open_inputs import OpenArguments, found_and_allowed, named_inputs, open_arguments
from dmlcpu.jobs.operations import Operation, operation_of
from dmlcpu.models.faults import ModelError
from dmlcpu.runtime.threads import limit_threads

_ESTIMATES = 1000  # that are kept

# The message of a TypeError about an argument of the wrong kind.
_WRONG_KIND = re.compile(r"\w+: ([\w.]+) is (.+); allowed: (.+)", re.DOTALL)


@dataclass(slots=True)
class Checker:
    """Checks jobs, and keeps what many of them share."""

    directory: Path  # of relative paths
    settings: Settings
    apart: Apart
    count_chunks: bool  # that zarr and HDF5 arrays lack
    estimates: dict[Any, Estimate] = field(default_factory=dict)
    folder: Callable[[str], tuple[str | None, int]] = field(default_factory=lambda: functools.cache(_folder))

    def check(self, task: Task) -> Task:
        """Return a task with what it reads and needs, or with its errors."""
        assert task.job is not None
        if not task.job.is_remote:
            return self._checked(task, task.job)
        own, job = replace(task, errors=[]), task.job  # a check that is late goes on to write to it
        try:
            with patience(self.settings.retries, self.settings.timeout):
                return in_time(lambda: self._checked(own, job))
        except RemoteError as error:
            task.refuse("inputs", str(error.strerror), "files that can be read")
            return task

    def _checked(self, task: Task, job: Job) -> Task:
        operation = self._operation(task, job)
        if operation is None:
            return task
        self._check_names(task, job, operation)
        wanted = self._wanted(task, job, operation)
        inputs: dict[str, Identity] = {}
        failure: Exception | None = None
        try:
            inputs = identities(job, self.directory, content=self.settings.content_hash, settled=True)
        except (FileError, OSError, ImportError, DmlError) as error:  # most are noted when the file is opened
            failure = error
        limits = self.settings.limits
        options: Any = {"memory": limits.memory, "count_chunks": self.count_chunks}
        with (
            limit_threads(limits.threads),  # the choice of kernels may depend on threads
            contextlib.closing(open_arguments(job, operation, self.directory, task, **options)) as opened,
        ):
            for name, count in opened.missing_chunks.items() if self.settings.require_chunks else ():
                what = "has no list of chunks" if count is None else f"lacks {count} of its chunks"
                found = f"{named_inputs(job, operation)[name].spelled!r}, which {what}"
                task.refuse(f"inputs.{name}", found, "all chunks, as they are required")
            if failure and not task.errors:
                task.refuse("inputs", str(failure), "files that can be read")
            if not task.errors and (work := self._fit(task, job, operation, opened, wanted)):
                task.inputs, task.work = inputs, work
        return task

    def _operation(self, place: Place, job: Job) -> Operation | None:
        try:
            return operation_of(job.op, self.directory)
        except (LookupError, MissingExtraError) as error:
            place.refuse("op", repr(job.op), str(error))
        except OSError as error:
            place.refuse("op", f"{job.op!r}: {error.strerror}", "a file or a folder that can be read")
        except ModelError as error:
            for each in error.faults:
                place.refuse("op", f"{job.op!r} at {each.path}: {each.found}", each.allowed)
        except DmlError as error:
            place.refuse("op", f"{job.op!r}: {error.field} is {error.found}", error.allowed)
        return None

    def _check_names(self, place: Place, job: Job, operation: Operation) -> None:
        named = named_inputs(job, operation)
        for path in (*(f"inputs.{name}" for name in named), *(f"attrs.{name}" for name in job.attrs)):
            if path.partition(".")[2] not in operation.parameters:
                place.refuse(path, "unknown", listed(operation.parameters))
        for name in operation.required:
            if name not in named and name not in job.attrs:
                large = name in operation.sources
                place.refuse(f"{'inputs' if large else 'attrs'}.{name}", "missing", "a file" if large else "a value")

    def _wanted(self, place: Place, job: Job, operation: Operation) -> tuple[str, ...]:
        """Return the names of the results that are written, noting targets that cannot be."""
        wanted: list[str] = []
        for path, names in job.targets.items():
            for name in names or ():
                if name not in operation.results:
                    place.refuse(f"output.{name}", "unknown", listed(operation.results))
            names = names or operation.results
            wanted += names
            found, several = operation.form or known(path), len(names) > 1
            if not found or not found.check:
                place.refuse("output", repr(path), f"a file with one of the suffixes {_written(several)}")
            elif several and found.holds_one:
                allowed = f"a file for several arrays ({_written(several)}), or a file for each of {', '.join(names)}"
                place.refuse("output", f"{path!r}, which holds one array", allowed)
            elif operation.form and os.path.basename(path) in ("", os.curdir, os.pardir):
                place.refuse("output", repr(path), "a path that ends with the name of the folder")
            file = os.path.join(self.directory, path)
            reason, longest = self.folder(os.path.dirname(file))
            length, most = len(os.fsencode(os.path.basename(file))), longest - LONGER
            if reason or (reason := _target_error(file, found)):
                place.refuse("output", f"{path!r}: {reason}", "a file in a folder that can be written to")
            elif length > most:
                allowed = f"at most {most}, as its temporary name is {LONGER} longer"
                place.refuse("output", f"{path!r}, a name of {length} bytes", allowed)
        return tuple(name for name in operation.results if name in wanted)

    def _fit(
        self, task: Task, job: Job, operation: Operation, opened: OpenArguments, wanted: tuple[str, ...]
    ) -> Work | None:
        sources, memory = opened.sources.values(), self.settings.limits.memory
        try:
            estimate = self._estimate(job, operation, opened)
        except (DmlError, TypeError) as error:
            self._note(task, job, error)
            return None
        except Exception as error:  # an error that no check foresees fails this job only
            task.refuse("", f"{type(error).__name__}: {' '.join(str(error).split())}", "what the operator's page says")
            return None
        tensors = estimate.results
        held = self._held(task, job, operation, tensors)
        if task.errors:
            return None
        whole = held + sum(tensor.nbytes for tensor in tensors.values() if tensor)
        buffers = sum(source.buffer_bytes for source in sources)
        held += buffers + sum(source.nbytes for source in sources if not source.in_regions)
        in_blocks = operation.form is not None
        # In one piece: `whole` when the inputs are not needed any more.
        peak = estimate.memory + held if in_blocks else max(estimate.memory + buffers, whole)
        if peak > memory and (needed := min(peak, estimate.least() + held)) > memory:
            of_it = f", {size(held)} of it for files that are read or written whole" if held <= peak and held else ""
            found = f"a job that needs {size(needed)} of memory{of_it}"
            in_regions = suffixes_where(lambda each: each.create)
            less = f"; {' and '.join(in_regions)} are read and written in blocks" if held else ""
            task.refuse("", found, f"{size(memory)} (the maximal memory, shared by the workers{less})")
            return None
        return Work(
            {name: source.shape for name, source in opened.sources.items()},
            {name: tensors[name] for name in wanted},
            estimate.kernel,
            sum(source.nbytes for source in sources),
            min(peak, memory),
            memory - held if in_blocks or peak > memory else None,
            opened.missing_chunks,
        )

    def _held(self, task: Task, job: Job, operation: Operation, tensors: Mapping[str, Tensor | None]) -> int:
        """Return the bytes of results whose files are written whole; note where targets are, and which cannot be."""
        held = 0
        for path, names in job.targets.items():
            wanted = {name: tensors[name] for name in names or operation.results}
            sized = {name: tensor for name, tensor in wanted.items() if tensor}
            form = operation.form or known(path)
            held += (form.copies if form else 0) * sum(tensor.nbytes for tensor in sized.values())
            file = self.apart.found(path)
            if file != os.path.normpath(os.path.join(self.apart.here, path)):
                task.places = {**task.places, path: file}
            try:
                if sized == wanted:
                    check_target(file, sized, form, is_real=True)
            except (FileError, OSError, MissingExtraError) as error:
                task.refuse("output", *found_and_allowed(path, error, "a file that can be written"))
        return held

    def _estimate(self, job: Job, operation: Operation, opened: OpenArguments) -> Estimate:
        """Return the operation's estimate, which jobs of the same attributes, shapes and types share."""
        arguments = {**opened.values, **opened.sources}
        if any(isinstance(value, np.ndarray) for value in opened.values.values()):  # of a file: its elements count
            return operation.estimate(arguments)
        sources = tuple((name, each.shape, each.dtype) for name, each in opened.sources.items())
        key = (operation, repr(job.attrs), sources)
        if key not in self.estimates:
            if len(self.estimates) >= _ESTIMATES:
                self.estimates.clear()
            self.estimates[key] = operation.estimate(arguments)
        return self.estimates[key]

    def _note(self, place: Place, job: Job, error: Exception) -> None:
        """Note a refusal of an operator, under the member of the job that gives the argument."""
        if isinstance(error, DmlError):
            path, found, allowed = error.field, error.found, error.allowed
            if found == "|V2":
                named = "--dtype bfloat16" if place.options else '"dtype": "bfloat16" in the input'
                allowed = f"{allowed.partition(';')[0]}; for bfloat16: {named}"
        elif match := _WRONG_KIND.fullmatch(str(error)):
            path, found, allowed = match.groups()
        else:
            place.refuse("", str(error), "what the operator's page says")
            return
        argument = path.partition("[")[0].partition(".")[0]
        member = "attrs" if argument in job.attrs else "inputs"
        place.refuse(f"{member}.{path}", found, allowed)


def _folder(folder: str) -> tuple[str | None, int]:
    """Return why no file can be made in a folder, or None, and the bytes of its longest name. It need not exist."""
    return folder_error(folder), os.pathconf(existing(folder), "PC_NAME_MAX") if hasattr(os, "pathconf") else 255


def _written(several: bool) -> str:
    """Return the suffixes of the formats that are written, for one array or several."""
    return ", ".join(suffixes_where(lambda each: each.check and not (several and each.holds_one)))


def _target_error(file: str, form: Format | None) -> str | None:
    """Return why a file of a format cannot be made or replaced, judged by what has its name now."""
    try:
        is_folder = stat.S_ISDIR(os.stat(file).st_mode)
    except FileNotFoundError:
        return None
    except OSError as error:
        return error.strerror
    if is_folder == bool(form and form.mark):
        return None
    return "there is a folder" if is_folder else "there is a file, where a folder is to be"
