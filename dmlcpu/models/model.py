"""Load a DxDispatch model: the whole file is checked, and all errors are raised together, before anything runs."""

import contextlib
import functools
import json
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import resources
from os import PathLike
from pathlib import Path as FilePath
from typing import Any, TypeVar

from dmlcpu.common.faults import listed, shown
from dmlcpu.common.imports import extra
from dmlcpu.models.commands import Command, check_deferred, load_command
from dmlcpu.models.dispatchables import Dispatchable, load_dispatchable
from dmlcpu.models.faults import Faults, ModelError, Path, Refused, json_path
from dmlcpu.models.onnx_models import OnnxDispatchable, load_onnx_dispatchable
from dmlcpu.models.relaxed_json import parse
from dmlcpu.models.resources import Buffer, Files, load_buffer

T = TypeVar("T")

_log = logging.getLogger("dmlcpu")


@dataclass(frozen=True, slots=True)
class Model:
    """A DxDispatch model that has been checked: `load_model` returns it, and `run_model` runs it."""

    buffers: dict[str, Buffer]
    dispatchables: dict[str, Dispatchable | OnnxDispatchable]
    commands: list[Command]
    files: list[FilePath]  # other files that it was read from


def load_model(path: str | PathLike[str]) -> Model:
    """Load a DxDispatch model and check all of it.

    Parameters
    ----------
    path : str or os.PathLike
        A JSON file; comments and trailing commas are allowed. Files that the model names are looked up in its folder,
        then in the current directory.

    Returns
    -------
    Model
        The checked model, for `run_model`.

    Raises
    ------
    ModelError
        If the model cannot be run. The attribute `faults` has all errors in the file.
    OSError
        If the file cannot be read.
    ImportError
        If a package is not installed; the message names the extra that installs it.

    Notes
    -----
    The format is that of DxDispatch, Microsoft's tool that runs DirectML operators. Models that need HLSL, images or
    operators that dmlcpu lacks are refused as a whole. Models that run ONNX models need the package onnx.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from dmlcpu import batch
    >>> path = pathlib.Path(tempfile.mkdtemp(), "model.json")
    >>> _ = path.write_text('''{
    ...     "resources": {"A": {"initialValuesDataType": "UINT8", "initialValues": [1, 256]}},
    ...     "dispatchables": {},
    ...     "commands": [{"type": "print", "resource": "B"}],  // no such resource
    ... }''')
    >>> try:
    ...     batch.load_model(path)
    ... except batch.ModelError as error:
    ...     for fault in error.faults:
    ...         print(fault)
    $.resources.A.initialValues[1]: 256; allowed: integers from 0 to 255 (UINT8)
    $.commands[0].resource: 'B'; allowed: a resource: A
    """
    source = FilePath(path)
    faults = Faults()
    data: Any = None
    try:
        data = parse(source.read_text("utf-8-sig"), faults)
    except UnicodeDecodeError as error:
        faults.add(f"not UTF-8 at byte {error.start}", "UTF-8 text")
    if data is not None or not faults:  # a file that holds null has no error yet
        _check_shape(data, faults)
    misshapen = faults.entries()
    model = None
    if all(len(entry) == 2 for entry in misshapen):
        _warn_of_unknown_members(data, misshapen)
        model = _load(data, misshapen, source.parent, faults)
    if faults or model is None:
        raise ModelError(str(path), faults.in_order_of(data))
    return model


def _load(data: dict[str, Any], misshapen: set[Path], folder: FilePath, faults: Faults) -> Model:
    """Load every well-formed entry; references to the others are still checked as far as possible."""
    files = Files(folder)

    def loaded(member: str, load: Callable[[Any, Any, Faults], T]) -> dict[Any, T | None]:
        """Load the entries of a member; None stands for invalid ones."""
        found: dict[Any, T | None] = {}
        for name, entry in _entries(data[member]):
            found[name] = None
            if (member, name) not in misshapen:
                with contextlib.suppress(Refused):
                    found[name] = load(name, entry, faults.at(member, name))
        return found

    def load_any(name: str, entry: dict[str, Any], here: Faults) -> Dispatchable | OnnxDispatchable:
        if _is_onnx(entry):
            return load_onnx_dispatchable(name, entry, files, here)
        return load_dispatchable(entry, buffers, here)

    buffers = loaded("resources", lambda name, entry, here: load_buffer(name, entry, files, here))
    dispatchables = loaded("dispatchables", load_any)
    commands = loaded("commands", lambda _, entry, here: load_command(entry, buffers, dispatchables, here)).values()
    check_deferred(commands, buffers, faults.at("commands"))
    return Model(
        {name: buffer for name, buffer in buffers.items() if buffer},
        {name: dispatchable for name, dispatchable in dispatchables.items() if dispatchable},
        [command for command in commands if command],
        files.found,
    )


def _is_onnx(entry: Any) -> bool:
    return isinstance(entry, dict) and str(entry.get("type")).lower() == "onnx"  # DxDispatch ignores case


@functools.cache
def _schema() -> Any:
    return json.loads(resources.files("dmlcpu.models").joinpath("model_schema.json").read_text("utf-8"))


def _check_shape(data: Any, faults: Faults) -> None:
    """Check the file against the JSON Schema; an error's "allowed" is the schema's "description"."""
    for error in extra("jsonschema").Draft202012Validator(_schema()).iter_errors(data):
        path, schema = error.absolute_path, error.schema
        if error.validator != "required":
            faults.at(*path).add(shown(error.instance), schema["description"])
            continue
        for name in (each for each in error.validator_value if each not in error.instance):
            faults.at(*path, name).add("missing", schema["properties"][name]["description"])


def _warn_of_unknown_members(data: dict[str, Any], misshapen: set[Path]) -> None:
    """Log members that DxDispatch ignores silently, most often misspelt optional members."""
    objects: list[tuple[Path, Any]] = [((), data)]
    for member in ("resources", "dispatchables", "commands"):
        objects += [((member, name), entry) for name, entry in _entries(data[member])]
    for path, entry in (each for each in objects if each[0] not in misshapen):
        known = _schema_of(path, entry)["properties"]
        for name in (each for each in entry if each not in known):
            _log.warning("%s is unknown and ignored; known: %s", json_path((*path, name)), listed(known))


def _schema_of(path: Path, entry: dict[str, Any]) -> Any:
    """Return the part of the schema for the file or one of its entries."""
    if not path:
        return _schema()
    kinds = {"resources": "resource", "dispatchables": "onnx" if _is_onnx(entry) else "operator"}
    return _schema()["$defs"][kinds.get(str(path[0])) or entry["type"]]


def _entries(entries: dict[str, Any] | list[Any]) -> Iterable[tuple[Any, Any]]:
    return entries.items() if isinstance(entries, dict) else enumerate(entries)
