"""`onnxruntime.InferenceSession` as far as programs use it: they change one import line."""

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from dmlcpu.interop.onnx.backend import BackendRep, Tensor
from dmlcpu.interop.onnx.choice import Wanted
from dmlcpu.interop.onnx.loading import Model


class InferenceSession:
    """A prepared model with the methods of `onnxruntime.InferenceSession`.

    Parameters
    ----------
    path_or_bytes : str, os.PathLike, bytes or onnx.ModelProto
        The model, or its file.
    sess_options : onnxruntime.SessionOptions, optional
        They apply to the ONNX Runtime sessions. A pickle or a copy keeps the attributes, such as
        `intra_op_num_threads`, but not what methods have set: entries of the configuration, and libraries. The class
        adds entries that the model needs: to be exact without VNNI, and for the folder of external data.
    providers, provider_options : optional
        No effect: everything runs on the CPU.
    take, qdq, exact : optional
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
        exact: bool = True,
        **kwargs: Any,
    ) -> None:
        self._prepared = BackendRep(path_or_bytes, Wanted(take, qdq, exact), sess_options)

    def __getattr__(self, name: str) -> Any:
        """Return any other attribute of ONNX Runtime's session, if that runs the whole model."""
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
            They apply only if the whole model is one ONNX Runtime session.

        Returns
        -------
        list
            The outputs.

        Raises
        ------
        BindingError
            If an input is missing or unknown, or its type or shape differs from the model's. An unknown output raises
            it only if the model is cut; otherwise ONNX Runtime's own error.
        """
        return self._prepared.run_named(output_names, input_feed, run_options)

    def get_inputs(self) -> list[Any]:
        """Return the inputs without a default, each with its name, type and shape.

        Returns
        -------
        list
        """
        if self._prepared.session is not None:
            return list(self._prepared.session.get_inputs())
        tensors = self._prepared.inputs.items()
        return [_described(*each) for each in tensors if each[0] not in self._prepared.defaults]

    def get_outputs(self) -> list[Any]:
        """Return the outputs, each with its name, type and shape.

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
        """Count the nodes by what runs them; see `BackendRep.report`.

        Returns
        -------
        dict
        """
        return self._prepared.report()


_FLOATS = {"float32": "float", "float64": "double", "object": "string"}  # others are named as NumPy names them


def _described(name: str, tensor: Tensor | None) -> SimpleNamespace:
    """Return a tensor's description as ONNX Runtime writes it."""
    if tensor is None:
        return SimpleNamespace(name=name, type="", shape=[])
    kind = "" if tensor.dtype is None else tensor.dtype.name
    return SimpleNamespace(name=name, type=f"tensor({_FLOATS.get(kind, kind)})", shape=list(tensor.shape or ()))
