"""Loading a DxDispatch model: the whole file is checked, and all faults are raised together, before anything runs."""

import functools
import json
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from os import PathLike
from pathlib import Path as FilePath
from typing import Any

from dmlcpu.common.extras import extra
from dmlcpu.common.wording import listed, shown
from dmlcpu.models.commands import Command, check_deferred, load_command
from dmlcpu.models.dispatchables import Buffers, Dispatchable, load_dispatchable
from dmlcpu.models.faults import Faults, ModelError, Path, json_path
from dmlcpu.models.onnx_models import OnnxDispatchable, load_onnx_dispatchable
from dmlcpu.models.relaxed_json import parse
from dmlcpu.models.resources import Buffer, Files, load_buffer

_log = logging.getLogger("dmlcpu")


@dataclass(frozen=True, slots=True)
class Model:
    """A DxDispatch model that can be run: made by `load_model`, for `run_model`."""

    buffers: dict[str, Buffer]
    dispatchables: dict[str, Dispatchable | OnnxDispatchable]
    commands: list[Command]
    files: list[FilePath]  # that it was read from, beside the model file


def load_model(path: str | PathLike[str]) -> Model:
    """Load a DxDispatch model and check all of it.

    Parameters
    ----------
    path : str or os.PathLike
        A JSON file; comments and trailing commas are allowed. Files that it reads are looked for beside it, then in the
        current directory.

    Returns
    -------
    Model
        What `run_model` runs.

    Raises
    ------
    ModelError
        If the model cannot be run. Its `faults` are all that is wrong with the file.
    OSError
        If the file cannot be read.
    ImportError
        If a package is missing that an extra brings; the message says which extra.

    Notes
    -----
    The format is that of DxDispatch, Microsoft's runner of DirectML operators. Models that need HLSL, images or
    operators that are not here are refused as a whole. Those with ONNX models need the package onnx.

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
        faults.add((), f"not UTF-8 at byte {error.start}", "UTF-8 text")
    if data is not None or not faults:  # a file that holds null has no fault yet
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
    """Load every entry of the right shape; references to the others are still checked as far as possible."""
    files = Files(folder)
    buffers = {
        name: None if ("resources", name) in misshapen else load_buffer(name, entry, files, faults)
        for name, entry in data["resources"].items()
    }
    dispatchables = {
        name: None if ("dispatchables", name) in misshapen else _load_dispatchable(name, entry, buffers, files, faults)
        for name, entry in data["dispatchables"].items()
    }
    commands = [
        None if ("commands", i) in misshapen else load_command(i, entry, buffers, dispatchables, faults)
        for i, entry in enumerate(data["commands"])
    ]
    check_deferred(commands, buffers, faults)
    return Model(
        {name: buffer for name, buffer in buffers.items() if buffer},
        {name: dispatchable for name, dispatchable in dispatchables.items() if dispatchable},
        [command for command in commands if command],
        files.found,
    )


def _load_dispatchable(
    name: str, entry: dict[str, Any], buffers: Buffers, files: Files, faults: Faults
) -> Dispatchable | OnnxDispatchable | None:
    if _is_onnx(entry):
        return load_onnx_dispatchable(name, entry, files, faults)
    return load_dispatchable(name, entry, buffers, faults)


def _is_onnx(entry: Any) -> bool:
    return isinstance(entry, dict) and str(entry.get("type")).lower() == "onnx"  # DxDispatch ignores case


@functools.cache
def _schema() -> dict[str, Any]:
    text = resources.files("dmlcpu.models").joinpath("model_schema.json").read_text("utf-8")
    schema: dict[str, Any] = json.loads(text)
    return schema


def _check_shape(data: Any, faults: Faults) -> None:
    """Check the file against the JSON Schema; a fault's "allowed" is the schema's "description"."""
    for error in extra("jsonschema").Draft202012Validator(_schema()).iter_errors(data):
        path = tuple(error.absolute_path)
        if error.validator == "required":
            for name in error.validator_value:
                if name not in error.instance:
                    faults.add((*path, name), "missing", error.schema["properties"][name]["description"])
        else:
            faults.add(path, shown(error.instance), error.schema["description"])


def _warn_of_unknown_members(data: dict[str, Any], misshapen: set[Path]) -> None:
    """Log members that DxDispatch ignores in silence: most often a misspelt optional member."""
    for path, entry, kind in _objects(data):
        if path not in misshapen:
            known = (_schema() if kind is None else _schema()["$defs"][kind])["properties"]
            for name in entry:
                if name not in known:
                    _log.warning("%s is unknown and ignored; known: %s", json_path((*path, name)), listed(known))


def _objects(data: dict[str, Any]) -> Iterator[tuple[Path, Any, str | None]]:
    """Yield each object with members of its own, its place and its kind in the schema."""
    yield (), data, None
    for name, entry in data["resources"].items():
        yield ("resources", name), entry, "resource"
    for name, entry in data["dispatchables"].items():
        yield ("dispatchables", name), entry, "onnx" if _is_onnx(entry) else "operator"
    for i, entry in enumerate(data["commands"]):
        yield ("commands", i), entry, entry.get("type") if isinstance(entry, dict) else None
