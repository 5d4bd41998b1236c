"""`onnxruntime.InferenceSession` as far as programs use it, for a change of one import line."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from dmlcpu.errors import BindingError
from dmlcpu.interop.onnx.backend import BackendRep, Tensor
from dmlcpu.interop.onnx.graphs import NAME
from dmlcpu.interop.onnx.loading import Model
from dmlcpu.interop.onnx.runtime import attributes_of


class NodeArg(NamedTuple):
    """An input or output, as ONNX Runtime describes it."""

    name: str
    type: str
    shape: list[int | str | None]


class InferenceSession:
    """A prepared model with the methods of `onnxruntime.InferenceSession`.

    Parameters
    ----------
    path_or_bytes : str, os.PathLike, bytes or onnx.ModelProto
        The model, or its file.
    sess_options : onnxruntime.SessionOptions, optional
        All of it counts in the sessions that run what these kernels do not. A pickle, and a copy, keep the attributes,
        such as `intra_op_num_threads`, but not what methods have set: entries of the configuration, and libraries.
        Entries that the model needs are set in it: to be exact without VNNI, and for the folder of external data.
    providers, provider_options : optional
        They have no effect: everything runs on the CPU.
    take : {"auto", "all"} or sequence of str, default "auto"
        See `Backend.prepare`.
    qdq : bool, default False
        See `Backend.prepare`.
    **kwargs
        No effect.

    Examples
    --------
    >>> import numpy as np
    >>> from onnx import TensorProto, helper
    >>> from dmlcpu.interop.onnx import InferenceSession
    >>> x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n"]) for name in "xy")
    >>> graph = helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "negated", [x], [y])
    >>> model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    >>> session = InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    >>> session.run(None, {session.get_inputs()[0].name: np.array([1, -2], np.float32)})
    [array([-1.,  2.], dtype=float32)]
    """

    def __init__(
        self,
        path_or_bytes: Model,
        sess_options: Any = None,
        providers: Any = None,
        provider_options: Any = None,
        *,
        take: str | Sequence[str] = "auto",
        qdq: bool = False,
        **kwargs: Any,
    ) -> None:
        self._prepared = BackendRep(path_or_bytes, take, qdq, sess_options)

    def __reduce__(self) -> tuple[Any, ...]:
        given, take, qdq, options = self._prepared.made_of
        return _again, (given, take, qdq, attributes_of(options))

    def __getattr__(self, name: str) -> Any:
        """Return what ONNX Runtime's session has besides, if it runs the whole model."""
        session = None if name.startswith("_") else self._prepared.session
        if session is None:
            raise AttributeError(f"InferenceSession has no attribute {name!r} here: the model is no single session")
        return getattr(session, name)

    def run(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any], run_options: Any = None
    ) -> list[Any]:
        """Run the model.

        Parameters
        ----------
        output_names : sequence of str or None
            Which outputs to return; None: all.
        input_feed : mapping of str to array
            The inputs.
        run_options : optional
            It counts where the whole model is one session of ONNX Runtime.

        Returns
        -------
        list
            The outputs.

        Raises
        ------
        BindingError
            If an input or output is missing or unknown, or its type or shape differs from the model's.
        """
        if self._prepared.session is not None:
            return self._prepared.run_named(output_names, input_feed, run_options)
        names = list(output_names or self._prepared.outputs)
        for name in names:
            if name not in self._prepared.outputs:
                raise BindingError(NAME, "output_names", repr(name), ", ".join(self._prepared.outputs))
        return self._prepared.run_named(names, input_feed, run_options)

    def get_inputs(self) -> list[Any]:
        """Return the inputs without a default: each has name, type and shape.

        Returns
        -------
        list
        """
        if self._prepared.session is not None:
            return list(self._prepared.session.get_inputs())
        tensors = self._prepared.inputs.items()
        return [_described(*each) for each in tensors if each[0] not in self._prepared.defaults]

    def get_outputs(self) -> list[Any]:
        """Return the outputs: each has name, type and shape.

        Returns
        -------
        list
        """
        if self._prepared.session is not None:
            return list(self._prepared.session.get_outputs())
        return [_described(*each) for each in self._prepared.outputs.items()]

    def get_providers(self) -> list[str]:
        """Return what runs the model: the CPU.

        Returns
        -------
        list of str
        """
        return ["CPUExecutionProvider"]

    def report(self) -> dict[str, dict[str, int]]:
        """Return what runs the nodes; see `BackendRep.report`.

        Returns
        -------
        dict
        """
        return self._prepared.report()


def _again(given: Model, take: str | Sequence[str], qdq: bool, options: Any) -> InferenceSession:
    return InferenceSession(given, options, take=take, qdq=qdq)


_FLOATS = {"float32": "float", "float64": "double", "object": "string"}  # others are named as NumPy names them


def _described(name: str, tensor: Tensor | None) -> NodeArg:
    """Return what ONNX Runtime says of a tensor."""
    if tensor is None:
        return NodeArg(name, "", [])
    kind = "" if tensor.dtype is None else np.dtype(tensor.dtype).name
    return NodeArg(name, f"tensor({_FLOATS.get(kind, kind)})", list(tensor.shape or ()))
