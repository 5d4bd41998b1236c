"""What reads files and dictionaries of others, and inputs that are nearly right for it.

A target makes inputs as bytes and reads them: only its refusals may get out.
"""

import contextlib
import dataclasses
import functools
import io
import itertools
import json
import shutil
import sys
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

sys.path.extend([str(Path(__file__).parents[1] / folder) for folder in ("", "jobs", "models", "interop")])

from dx_models import dispatch, everything, zeros
from job_files import toml
from mutations import Draws, changed_bytes, changed_tree

import dmlcpu
from dmlcpu import batch
from dmlcpu.errors import DmlError
from dmlcpu.files import FileError, open_source
from dmlcpu.models.commands import WriteFile
from dmlcpu.operators import OPERATORS
from dmlcpu.search import Int8Index


class Target(NamedTuple):
    """A reader."""

    make: Callable[[Draws], bytes]
    read: Callable[[bytes], None]
    refusals: tuple[type[Exception], ...]


def _json(draws: Draws, tree: Any) -> bytes:
    text = json.dumps(changed_tree(draws, tree)).encode()
    return changed_bytes(draws, text) if draws.integer(0, 3) == 0 else text


MODEL = everything()


def make_model(draws: Draws) -> bytes:
    return _json(draws, MODEL)


def read_model(data: bytes) -> None:
    np.save("none.npy", np.zeros(3, np.int8))
    Path("model.json").write_bytes(data)
    _run(batch.load_model("model.json"))


def _run(model: batch.Model) -> None:
    """Run a model on little memory; it writes no files, because their names may be any."""
    if sum(buffer.size for buffer in model.buffers.values()) < 1 << 26:
        commands = [command for command in model.commands if not isinstance(command, WriteFile)]
        batch.run_model(dataclasses.replace(model, commands=commands), emit=lambda line: None)


def make_onnx(draws: Draws) -> bytes:
    """Change the bytes, or fields of the model."""
    import onnx
    import onnx_parts
    from google.protobuf import json_format

    model = draws.one_of([onnx_parts.dynamic, onnx_parts.quantized])()
    if draws.integer(0, 1):
        with contextlib.suppress(Exception):  # Protobuf raises nearly anything
            fields = changed_tree(draws, json_format.MessageToDict(model))
            return json_format.ParseDict(fields, onnx.ModelProto()).SerializeToString()
    return changed_bytes(draws, model.SerializeToString())


def read_onnx(data: bytes) -> None:
    Path("model.onnx").write_bytes(data)
    read_some(
        [functools.partial(_run_onnx, output) for output in ("values", "out")], (batch.ModelError, batch.RunError)
    )


def _run_onnx(output: str) -> None:
    resources = {"x": zeros("FLOAT32", 40), "y": {"initialValuesDataType": "FLOAT32", "initialValues": "deferred"}}
    bindings = {"x": {"name": "x", "shape": [5, 8]}, output: {"name": "y"}}
    dispatchables = {"m": {"type": "onnx", "sourcePath": "model.onnx"}}
    model = {"resources": resources, "dispatchables": dispatchables, "commands": [dispatch("m", **bindings)]}
    Path("onnx.json").write_text(json.dumps(model))
    _run(batch.load_model("onnx.json"))


def read_some(calls: Sequence[Callable[[], None]], refusals: Any) -> None:
    """Make calls; if all are refused, raise the first refusal."""
    refused = []
    for call in calls:
        try:
            call()
        except refusals as error:
            refused.append(error)
    if len(refused) == len(calls):
        raise refused[0]


JOBS = [
    {"id": "a", "op": "top_k", "inputs": {"x": "f.npy"}, "attrs": {"k": 2, "largest": False}, "output": "o/a.npz"},
    {
        "op": "top_k",
        "inputs": {"x": {"path": "f.npz", "name": "x", "dtype": "bfloat16"}},
        "attrs": {"k": 1},
        "output": {"values": "v.npy", "indices": "i.npy"},
    },
    {
        "op": "scatter_nd",
        "inputs": {"x": "f.npy", "updates": [1.0]},
        "attrs": {"indices": [[0]], "reduction": "add"},
        "output": "o/{stem}.npy",
        "glob": "*.npy",
    },
    {
        "op": "quantized_matmul",
        "inputs": {"a": "q.npy", "b": "q.npy"},
        "attrs": {"a_scale": 1.0, "b_scale": [1.0, 2], "y_scale": 1.0, "y_zero_point": 3},
        "output": "y.npy",
    },
    {"op": "m.json", "inputs": {"x": "f.npy"}, "output": "o/{stem}.npz", "files": ["f.npy", "q.npy"]},
]


def make_jobs(draws: Draws) -> bytes:
    """Make JSON Lines, one job or several."""
    jobs = changed_tree(draws, draws.one_of([JOBS, [draws.one_of(JOBS)]]))
    text = "\n".join(map(json.dumps, jobs)).encode()
    return changed_bytes(draws, text) if draws.integer(0, 3) == 0 else text


def make_toml(draws: Draws) -> bytes:
    tree = changed_tree(draws, {"defaults": {"op": "top_k", "attrs": {"k": 2, "axis": 0}}, "job": JOBS})
    text = "\n".join(f"{toml(name)} = {toml(value)}" for name, value in tree.items()).encode("utf-8", "replace")
    return changed_bytes(draws, text) if draws.integer(0, 3) == 0 else text


def read_jobs(name: str) -> Callable[[bytes], None]:
    def read(data: bytes) -> None:
        x = np.arange(8, dtype=np.float32)
        if not Path("f.npy").exists():
            np.save("f.npy", x)
            np.save("q.npy", np.arange(4, dtype=np.uint8).reshape(2, 2))
            np.savez("f.npz", x=np.arange(8, dtype=np.uint16), y=x)
            Path("m.json").write_text(json.dumps(MODEL))
        Path(name).write_bytes(data)
        str(batch.plan_jobs(name))

    return read


ARRAYS = [
    np.arange(6, dtype=np.float32).reshape(2, 3),
    np.arange(3, dtype=">i8"),
    np.asfortranarray(np.ones((2, 2), np.uint8)),
]


def npy_of(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def make_npy(draws: Draws) -> bytes:
    return changed_bytes(draws, npy_of(draws.one_of(ARRAYS)))


def make_npz(draws: Draws) -> bytes:
    """Change the archive, or a member, which then has the right check sum."""
    file, inside = io.BytesIO(), draws.integer(0, 1)
    with zipfile.ZipFile(file, "w", draws.one_of([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])) as archive:
        for name, array in zip(("x.npy", "y.npy", "z.npy"), ARRAYS, strict=True):
            archive.writestr(name, changed_bytes(draws, npy_of(array)) if inside else npy_of(array))
    return file.getvalue() if inside else changed_bytes(draws, file.getvalue())


def make_safetensors(draws: Draws) -> bytes:
    """Change the bytes, or the header, which then has the right length."""
    from safetensors.numpy import save

    data = save({"x": np.arange(6, dtype=np.float32).reshape(2, 3), "y": np.ones(2, np.int8)})
    if draws.integer(0, 1):
        return changed_bytes(draws, data)
    length = int.from_bytes(data[:8], "little")
    header = _json(draws, json.loads(data[8 : 8 + length]))
    return len(header).to_bytes(8, "little") + header + data[8 + length :]


def make_pb(draws: Draws) -> bytes:
    from onnx import TensorProto, helper, numpy_helper

    whole = [numpy_helper.from_array(array.astype(array.dtype.newbyteorder("=")), "x") for array in ARRAYS]
    types = ("FLOAT", "INT64", "BFLOAT16", "FLOAT16", "BOOL", "INT4", "COMPLEX64")
    listed = [helper.make_tensor("x", TensorProto.DataType.Value(each), [2], [1, 0]) for each in types]
    strings = helper.make_tensor("x", TensorProto.STRING, [2], [b"a", b"b"])
    return changed_bytes(draws, draws.one_of([*whole, *listed, strings]).SerializeToString())


def _read_array(name: str, array: str | None, dtype: str | None) -> None:
    with open_source(name, array, dtype) as source:
        if source.nbytes < 1 << 28:  # a small file may say that an array is huge, and jobs have a limit
            source.read()


def read_file(name: str) -> Callable[[bytes], None]:
    def read(data: bytes) -> None:
        Path(name).write_bytes(data)
        kinds = itertools.product((None, "x"), (None, "bfloat16", "nonsense"))
        read_some([functools.partial(_read_array, name, array, dtype) for array, dtype in kinds], FileError)

    return read


def save_index() -> None:
    Int8Index(np.eye(4, dtype=np.float32), "cosine", ids=np.arange(4), floats=True).save("x.index")


def read_index() -> None:
    Int8Index.load("x.index").search(np.ones((2, 4), np.float32), 2)


def save_zarr() -> None:
    import zarr

    group = zarr.create_group("x.zarr")
    for name, array in zip("xyz", ARRAYS, strict=True):
        group.create_array(name, data=array, chunks=(2,) * array.ndim)


def read_zarr() -> None:
    _read_array("x.zarr", "x", None)


def saved_once(folder: str, save: Callable[[], None]) -> Callable[[], None]:
    """Return a function that restores a folder; its first call saves the folder."""
    files: dict[Path, bytes] = {}

    def make() -> None:
        shutil.rmtree(folder, ignore_errors=True)
        if not files:
            save()
            files.update({path: path.read_bytes() for path in Path(folder).rglob("*") if path.is_file()})
        for path, data in files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)

    return make


def folder_target(folder: str, save: Callable[[], None], read: Callable[[], None], refusals: Any) -> Target:
    """Return a target whose inputs are changes of a file of a folder."""
    again = saved_once(folder, save)
    return Target(changed_file(folder, again), read_folder(again, read), refusals)


def changed_file(folder: str, save: Callable[[], None]) -> Callable[[Draws], bytes]:
    """Change a file of a folder: the input is a line with its name, and its bytes."""

    def make(draws: Draws) -> bytes:
        save()
        path = draws.one_of(sorted(path for path in Path(folder).rglob("*") if path.is_file()))
        data = path.read_bytes()
        if path.suffix == ".json" and draws.integer(0, 2):
            return f"{path}\n".encode() + _json(draws, json.loads(data))
        return f"{path}\n".encode() + changed_bytes(draws, data)

    return make


def read_folder(save: Callable[[], None], read: Callable[[], None]) -> Callable[[bytes], None]:
    def read_changed(data: bytes) -> None:
        save()
        name, _, changed = data.partition(b"\n")
        Path(name.decode()).write_bytes(changed)
        read()

    return read_changed


DESCS = [desc.to_dict() for row in OPERATORS.values() for desc, *_ in (row.desc_examples() if row.descs else ())]


def make_desc(draws: Draws) -> bytes:
    return json.dumps(changed_tree(draws, draws.one_of(DESCS))).encode()


def read_desc(data: bytes) -> None:
    """Make a desc and call the operator on zeros."""
    desc = dmlcpu.operator_desc_from_dict(json.loads(data))
    assert dmlcpu.operator_desc_from_dict(desc.to_dict()) == desc
    sizes = {field.name: tensor.total_tensor_size_in_bytes for field, tensor in desc.tensors()}
    operator = dmlcpu.compile_operator(desc)
    if sum(sizes.values()) < 1 << 22:
        tensors = {name: np.zeros(size, np.uint8) for name, size in sizes.items()}
        owned = {f.name for f, tensor in desc.tensors() if tensor.flags & dmlcpu.TensorFlags.OWNED_BY_DML}
        operator.initialize(**{name: tensors.pop(name) for name in owned})
        operator(**tensors)


TARGETS = {
    "model": Target(make_model, read_model, (batch.ModelError, batch.RunError)),
    "onnx": Target(make_onnx, read_onnx, (batch.ModelError, batch.RunError)),
    "jobs": Target(make_jobs, read_jobs("jobs.jsonl"), (batch.JobsError,)),
    "toml": Target(make_toml, read_jobs("jobs.toml"), (batch.JobsError,)),
    "npy": Target(make_npy, read_file("x.npy"), (FileError,)),
    "npz": Target(make_npz, read_file("x.npz"), (FileError,)),
    "safetensors": Target(make_safetensors, read_file("x.safetensors"), (FileError,)),
    "pb": Target(make_pb, read_file("x.pb"), (FileError,)),
    "zarr": folder_target("x.zarr", save_zarr, read_zarr, (FileError,)),
    "index": folder_target("x.index", save_index, read_index, (DmlError,)),
    "desc": Target(make_desc, read_desc, (DmlError,)),
}
