"""Loading models: ONNX Runtime reads them as they come, this package without their external data."""

import os
from os import PathLike
from typing import NamedTuple, TypeAlias

import onnx
from google.protobuf.message import DecodeError

from dmlcpu.errors import BindingError
from dmlcpu.interop.onnx.graphs import NAME

Model: TypeAlias = onnx.ModelProto | bytes | str | PathLike[str]


class Source(NamedTuple):
    """A model."""

    given: bytes | str  # its bytes or its path, as ONNX Runtime takes them
    proto: onnx.ModelProto  # without external data
    folder: str  # of external data


def loaded(model: Model) -> Source:
    """Return a model, whose external data stay in their files: it may be larger than a message may be."""
    if isinstance(model, onnx.ModelProto):
        return Source(model.SerializeToString(), model, "")
    try:
        if isinstance(model, bytes):
            return Source(model, onnx.load_from_string(model), "")
        if isinstance(model, str | PathLike):
            path = os.fspath(model)
            return Source(path, onnx.load(path, format="protobuf", load_external_data=False), os.path.dirname(path))
    except DecodeError as error:
        raise BindingError(NAME, "model", f"unreadable ({error})", "an ONNX model") from error
    raise TypeError(f"onnx: model is {type(model).__name__}; allowed: onnx.ModelProto, bytes, str, os.PathLike")
