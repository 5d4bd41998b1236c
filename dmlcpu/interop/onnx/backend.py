"""A backend of ONNX: whole models, cut into parts for these kernels and for ONNX Runtime or ONNX's evaluator."""

import copy
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import onnx
import onnx.backend.base as base
from onnx import helper

from dmlcpu.common.arguments import Array
from dmlcpu.errors import BindingError, DmlError, UnsupportedError
from dmlcpu.interop.onnx.evaluator import LONG_DOMAIN, NAME, Model, evaluator_of, loaded
from dmlcpu.interop.onnx.program import AUTO, RESTS, Program


class Tensor(NamedTuple):
    """The type and shape that a model declares for an input or output."""

    dtype: np.dtype[Any] | None  # None: the model leaves it open
    shape: tuple[int | str | None, ...]  # a name stands for a size that is not fixed, None for any

    def fits(self, sizes: Sequence[int]) -> bool:
        """Return whether a shape is one that the model allows.

        Parameters
        ----------
        sizes : sequence of int
            The shape.

        Returns
        -------
        bool
        """
        if len(sizes) != len(self.shape):
            return False
        for size, wanted in zip(sizes, self.shape, strict=True):  # every run pays for it
            if size != wanted and isinstance(wanted, int):
                return False
        return True

    def __str__(self) -> str:
        return "[" + ", ".join("?" if size is None else str(size) for size in self.shape) + "]"


class BackendRep(base.BackendRep):  # type: ignore[misc]
    """A model that is ready to run: what `Backend.prepare` returns.

    Attributes
    ----------
    inputs, outputs : dict of str to Tensor or None
        The declared type and shape of each, in the model's order; None for an input or output that is not a tensor.
    defaults : frozenset of str
        Names of the inputs that need not be given, because an initializer has their name.
    """

    def __init__(self, model: onnx.ModelProto, rest: str = AUTO, qdq: bool = False) -> None:
        self.inputs = {each.name: _declared(each.type) for each in model.graph.input}
        self.outputs = {each.name: _declared(each.type) for each in model.graph.output}
        self.defaults = frozenset(each.name for each in model.graph.initializer) & self.inputs.keys()
        self._program = Program(model, rest, qdq=qdq)

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Run the model.

        Parameters
        ----------
        inputs : mapping of str to array, or sequence of arrays
            By name, or the inputs without a default in the model's order. A single array is the first of them.
        **kwargs
            ONNX's interface has them; none has an effect.

        Returns
        -------
        tuple
            The model's outputs, in its order.

        Raises
        ------
        BindingError
            If an input is missing or unknown, or its type or shape differs from the model's.
        TypeError
            If `inputs` is none of these.
        """
        return tuple(self._program.run(self._checked(self._named(inputs))))

    def report(self) -> dict[str, dict[str, int]]:
        """Count the nodes by what runs them, in branches, loops and the model's functions, too.

        Returns
        -------
        dict
            "dmlcpu", "onnxruntime" and "evaluator" (ONNX's reference evaluator), for each a dictionary: operator ->
            number of nodes; nodes that become one call count as that. "passed on": reason -> number of nodes that
            these kernels, or ONNX Runtime, left to another.
        """
        return {who: dict(sorted(each.items())) for who, each in self._program.counts.items()}

    def _named(self, inputs: Any) -> Mapping[str, Any]:
        if isinstance(inputs, Mapping):
            return inputs
        if not isinstance(inputs, Sequence | np.ndarray) or isinstance(inputs, str | bytes):
            raise TypeError(f"onnx: inputs is {type(inputs).__name__}; allowed: a mapping or a sequence of arrays")
        required = [name for name in self.inputs if name not in self.defaults]
        arrays: Sequence[Any] = [inputs] if isinstance(inputs, np.ndarray) else list(inputs)
        if len(arrays) > len(required):
            raise BindingError(NAME, "inputs", f"{len(arrays)} arrays", f"{len(required)}, for {_listed(required)}")
        return dict(zip(required, arrays, strict=False))

    def _checked(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        if inputs.keys() != self.inputs.keys():
            for name in inputs:
                if name not in self.inputs:
                    raise BindingError(NAME, _input_field(name), "unknown", _listed(self.inputs))
            for name in self.inputs:
                if name not in inputs and name not in self.defaults:
                    raise BindingError(NAME, _input_field(name), "missing", "an array")
        return {name: _checked(name, value, self.inputs[name]) for name, value in inputs.items()}


class Backend(base.Backend):  # type: ignore[misc]
    """ONNX's interface of backends: TopK, ScatterND, QLinearMatMul and others on these kernels.

    Other nodes run in ONNX Runtime, or in ONNX's reference evaluator if it is not installed. A constant B of
    QLinearMatMul, MatMulInteger or com.microsoft's MatMulIntegerToFloat is packed once, by `prepare`.

    Examples
    --------
    >>> import numpy as np
    >>> from onnx import TensorProto, helper
    >>> from dmlcpu.interop.onnx import Backend
    >>> b = helper.make_tensor("b", TensorProto.INT8, (2, 2), [1, -1, 2, -2])
    >>> graph = helper.make_graph(
    ...     [helper.make_node("MatMulInteger", ["a", "b"], ["y"])],
    ...     "products",
    ...     [helper.make_tensor_value_info("a", TensorProto.UINT8, ["rows", 2])],
    ...     [helper.make_tensor_value_info("y", TensorProto.INT32, ["rows", 2])],
    ...     [b],
    ... )
    >>> model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])
    >>> prepared = Backend.prepare(model)
    >>> prepared.run({"a": np.array([[10, 20], [30, 40]], np.uint8)})
    (array([[  50,  -50],
           [ 110, -110]], dtype=int32),)
    """

    @classmethod
    def is_compatible(cls, model: Model, device: str = "CPU", **kwargs: Any) -> bool:
        """Return whether `prepare` takes a model: it is valid, its operators are known, and the device is the CPU.

        Parameters
        ----------
        model : onnx.ModelProto, bytes, str or os.PathLike
            The model, or its file.
        device : str, default "CPU"
            In ONNX's notation.
        **kwargs
            No effect.

        Returns
        -------
        bool
        """
        try:
            cls.prepare(model, device, **kwargs)
        except (DmlError, onnx.checker.ValidationError):
            return False
        return True

    @classmethod
    def prepare(
        cls,
        model: Model,
        device: str = "CPU",
        *,
        rest: Literal["auto", "onnxruntime", "evaluator"] = "auto",
        qdq: bool = False,
        **kwargs: Any,
    ) -> BackendRep:
        """Check a model, cut it into parts, load what they need and pack constant weights.

        Parameters
        ----------
        model : onnx.ModelProto, bytes, str or os.PathLike
            The model, or its file, next to which external data are looked for.
        device : str, default "CPU"
            In ONNX's notation.
        rest : {"auto", "onnxruntime", "evaluator"}, default "auto"
            What runs the nodes that these kernels do not: ONNX Runtime, or ONNX's reference evaluator in NumPy. "auto"
            is ONNX Runtime where it is installed, and the evaluator for parts that ONNX Runtime cannot run.
        qdq : bool, default False
            Also run a MatMul between DequantizeLinear and QuantizeLinear as one QLinearMatMul. Its sums are exact. A
            result differs from that of float arithmetic by at most one step.
        **kwargs
            No effect.

        Returns
        -------
        BackendRep
            To be run many times.

        Raises
        ------
        UnsupportedError
            If the device is not the CPU, if `rest` cannot run a node, or is not installed.
        BindingError
            If bytes or a file are no model, or `rest` is not one of these.
        onnx.checker.ValidationError
            If the model is not valid. Inputs and outputs must have a shape there, though its sizes may be left open.
        TypeError
            If `model` is none of these.
        """
        cls._check_device(device)
        if rest not in RESTS:
            raise BindingError(NAME, "rest", repr(rest), ", ".join(map(repr, RESTS)))
        return BackendRep(loaded(model), rest, qdq)

    @classmethod
    def run_model(cls, model: Model, inputs: Any, device: str = "CPU", **kwargs: Any) -> tuple[Any, ...]:
        """Prepare a model and run it once; see `prepare` and `BackendRep.run`.

        Parameters
        ----------
        model : onnx.ModelProto, bytes, str or os.PathLike
            The model, or its file.
        inputs : mapping of str to array, or sequence of arrays
            By name, or in the model's order.
        device : str, default "CPU"
            In ONNX's notation.
        **kwargs
            No effect.

        Returns
        -------
        tuple
            The model's outputs.
        """
        return cls.prepare(model, device, **kwargs).run(inputs)

    @classmethod
    def run_node(
        cls, node: onnx.NodeProto, inputs: Any, device: str = "CPU", outputs_info: Any = None, **kwargs: Any
    ) -> tuple[Any, ...]:
        """Run one node.

        Parameters
        ----------
        node : onnx.NodeProto
            The node.
        inputs : sequence of arrays
            One for each input that the node names.
        device : str, default "CPU"
            In ONNX's notation.
        outputs_info : optional
            ONNX's interface has it; it has no effect.
        **kwargs
            `opset_version`: of the node's domain; by default the newest that the package onnx has.

        Returns
        -------
        tuple
            The node's outputs.

        Raises
        ------
        UnsupportedError
            If the device is not the CPU, or the operator is not known.
        onnx.checker.ValidationError
            If the node is not valid.
        """
        cls._check_device(device)
        if node.domain == LONG_DOMAIN:
            node = copy.deepcopy(node)
            node.domain = ""
        versions = onnx.defs.C.schema_version_map()  # by domain: the oldest and the newest
        opsets = {node.domain: kwargs.get("opset_version") or versions.get(node.domain, (1, 1))[1]}
        context = onnx.checker.C.CheckerContext()
        context.ir_version, context.opset_imports = onnx.IR_VERSION, opsets
        onnx.checker.check_node(node, context)
        names = [name for name in node.input if name]
        arrays = [np.asarray(each) for each in ([inputs] if isinstance(inputs, np.ndarray) else inputs)]
        if len(arrays) != len(names):
            raise BindingError(NAME, "inputs", f"{len(arrays)} arrays", f"{len(names)}, for {_listed(names)}")
        feeds = dict(zip(names, arrays, strict=True))
        given = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
            for name, array in feeds.items()
        ]
        graph = helper.make_graph([node], node.op_type, given, [onnx.ValueInfoProto(name=name) for name in node.output])
        return tuple(evaluator_of(graph, opsets=opsets).run(None, feeds))

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Return whether a device, as ONNX writes it, is the CPU.

        Parameters
        ----------
        device : str
            "CPU" or "CPU:0", for instance.

        Returns
        -------
        bool
        """
        kind, colon, number = device.partition(":") if isinstance(device, str) else ("", "", "")
        return kind == "CPU" and (number.isdigit() or not colon)

    @classmethod
    def _check_device(cls, device: str) -> None:
        if not cls.supports_device(device):
            raise UnsupportedError(NAME, "device", repr(device), "'CPU'")


def _declared(kind: onnx.TypeProto) -> Tensor | None:
    """Return the type and shape of a tensor; None if the value is not a tensor."""
    if not kind.HasField("tensor_type"):
        return None
    tensor = kind.tensor_type
    dtype = np.dtype(helper.tensor_dtype_to_np_dtype(tensor.elem_type)) if tensor.elem_type else None
    return Tensor(dtype, tuple(map(_declared_size, tensor.shape.dim)))


def _declared_size(dimension: Any) -> int | str | None:
    """Return a dimension's size or name; a negative size stands for any, as it does in ONNX Runtime."""
    if dimension.HasField("dim_value"):
        return int(dimension.dim_value) if dimension.dim_value >= 0 else None
    return dimension.dim_param or None


def _input_field(name: str) -> str:
    return f"inputs[{name!r}]"


def _checked(name: str, value: Any, tensor: Tensor | None) -> Any:
    """Return an input as an array, or refuse a type or shape that the model does not allow. tensor: None allows all."""
    if tensor is None:
        return value
    if type(value) is np.ndarray and value.dtype is tensor.dtype and tensor.fits(value.shape):  # the short way
        return value
    field = _input_field(name)
    if value is None:
        raise BindingError(NAME, field, "None", "an array")
    array: Array = np.asarray(value)
    dtype = tensor.dtype
    # Types that NumPy does not have itself stand for others in older versions of the package onnx.
    if dtype is not None and array.dtype != dtype and dtype.kind in "biufc" and array.dtype.kind != "V":
        raise BindingError(NAME, f"{field}.dtype", str(array.dtype), str(dtype))
    if dtype is not None and dtype.kind in "OUS" and array.dtype.kind not in "OUS":
        raise BindingError(NAME, f"{field}.dtype", str(array.dtype), "strings")
    if array.dtype.kind == "U":  # whose longest string is the longest that it takes
        array = array.astype(object)
    if not tensor.fits(array.shape):
        raise BindingError(NAME, f"{field}.shape", str(array.shape), str(tensor))
    return array


def _listed(names: Any) -> str:
    return ", ".join(names) or "nothing: the model has no inputs"
