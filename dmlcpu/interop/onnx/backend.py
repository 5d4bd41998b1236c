"""An ONNX backend: whole models in ONNX Runtime, or models cut into parts for these kernels and ONNX Runtime."""

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnx.backend.base as base
from onnx import helper

from dmlcpu.common.arguments import Array
from dmlcpu.errors import BindingError, DmlError, UnsupportedError
from dmlcpu.interop.onnx.choice import ALL, AUTO, Wanted
from dmlcpu.interop.onnx.graphs import NAME, model_of_node
from dmlcpu.interop.onnx.loading import Model, loaded
from dmlcpu.interop.onnx.program import Program
from dmlcpu.interop.onnx.runtime import attributes_of


class Tensor(NamedTuple):
    """The type and shape that a model declares for an input or output."""

    dtype: np.dtype[Any] | None  # None: the model leaves it open
    shape: tuple[int | str | None, ...] | None  # a name stands for a size that is not fixed, None for any; None: any

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
        if self.shape is None:
            return True
        if len(sizes) != len(self.shape):
            return False
        for size, wanted in zip(sizes, self.shape, strict=True):  # every run pays for it
            if size != wanted and isinstance(wanted, int):
                return False
        return True

    def __str__(self) -> str:
        if self.shape is None:
            return "any shape"
        return "[" + ", ".join("?" if size is None else str(size) for size in self.shape) + "]"


class BackendRep(base.BackendRep):  # type: ignore[misc]
    """A prepared model, which `Backend.prepare` returns.

    Attributes
    ----------
    inputs, outputs : dict of str to Tensor or None
        The declared type and shape of each, in the model's order; None for an input or output that is not a tensor.
    defaults : frozenset of str
        Names of the inputs that a caller may omit, because an initializer has their name.
    """

    def __init__(self, model: Model, wanted: Wanted, options: Any = None) -> None:
        _check_take(wanted.take)
        source = loaded(model)
        self._made_of = source.given, wanted, options
        graph = source.proto.graph
        self.inputs = {each.name: _declared(each.type) for each in graph.input}
        self.outputs = {each.name: _declared(each.type) for each in graph.output}
        sparse = (each.values for each in graph.sparse_initializer)
        self.defaults = frozenset(each.name for each in (*graph.initializer, *sparse)) & self.inputs.keys()
        self._program = Program(source, wanted, options)
        self.session = self._program.session

    def __reduce__(self) -> tuple[Any, ...]:
        given, wanted, options = self._made_of
        return type(self), (given, wanted, attributes_of(options))

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Run the model.

        Parameters
        ----------
        inputs : mapping of str to array, or sequence of arrays
            By name, or the inputs without a default in the model's order. A single array is the first input.
        **kwargs
            ONNX's interface declares them; `run` ignores them.

        Returns
        -------
        tuple
            The model's outputs, in its order.

        Raises
        ------
        BindingError
            If an input is missing or unknown, or its type or shape differs from the model's.
        TypeError
            If `inputs` has another type.
        """
        return tuple(self.run_named(None, inputs if type(inputs) is dict else self._named(inputs)))

    def run_named(self, names: Sequence[str] | None, feeds: Mapping[str, Any], options: Any = None) -> list[Any]:
        """Run the model; names: the outputs to return, None for all."""
        if self.session is not None:  # it checks inputs itself, and a second check would take time
            try:
                return self.session.run(names, feeds, options)  # type: ignore[no-any-return]
            except Exception:  # ONNX Runtime's errors have no class in common
                checked = self._checked(feeds)
                if all(checked[name] is value for name, value in feeds.items()):
                    raise
            return self.session.run(names, checked, options)  # type: ignore[no-any-return]
        for name in names or ():
            if name not in self.outputs:
                raise BindingError(NAME, "output_names", repr(name), ", ".join(self.outputs))
        results = self._program.run(self._checked(feeds))
        return [dict(zip(self.outputs, results, strict=True))[name] for name in names] if names else results

    def report(self) -> dict[str, dict[str, int]]:
        """Count the nodes by what runs them, including those in branches, loops and the model's functions.

        Returns
        -------
        dict
            "dmlcpu" and "onnxruntime", for each a dictionary: operator -> number of nodes; nodes that become one call
            count as one. "passed on": reason -> number of nodes that ONNX Runtime runs.
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
    """ONNX's backend interface: ONNX Runtime runs models, except for the nodes that dmlcpu runs.

    `prepare` packs the constant B of a product once.
    """

    @classmethod
    def is_compatible(cls, model: Model, device: str = "CPU", **kwargs: Any) -> bool:
        """Return whether `prepare` accepts a model: its operators are known, and the device is the CPU.

        Parameters
        ----------
        model : onnx.ModelProto, bytes, str or os.PathLike
            The model, or its file.
        device : str, default "CPU"
            In ONNX's notation.
        **kwargs
            As for `prepare`.

        Returns
        -------
        bool
        """
        try:
            cls.prepare(model, device, **kwargs)
        except DmlError:
            return False
        return True

    @classmethod
    def prepare(
        cls,
        model: Model,
        device: str = "CPU",
        *,
        take: str | Sequence[str] = "auto",
        qdq: bool = False,
        exact: bool = True,
        **kwargs: Any,
    ) -> BackendRep:
        """Choose the nodes that dmlcpu runs, cut the model, make ONNX Runtime's sessions and pack constant weights.

        Parameters
        ----------
        model : onnx.ModelProto, bytes, str or os.PathLike
            The model, or its file, whose folder contains the external data.
        device : str, default "CPU"
            In ONNX's notation.
        take : {"auto", "all"} or sequence of str, default "auto"
            Which nodes dmlcpu runs. "auto": those that ONNX Runtime computes wrongly on this processor, and those that
            make the whole model faster; often none. "all": all that it can run. A sequence: nodes by their names, or by
            the names of their first results; an empty sequence leaves the model whole.
        qdq : bool, default False
            Whether a MatMul between DequantizeLinear and QuantizeLinear may run as one QLinearMatMul. Its sums are
            exact. A result differs from that of float arithmetic by at most one step.
        exact : bool, default True
            Whether to compute exactly what ONNX Runtime computes wrongly on this processor. That may take up to 1.9
            times as long. False leaves these nodes to ONNX Runtime's default setting.
        **kwargs
            No effect.

        Returns
        -------
        BackendRep
            It runs many times. A copy or a pickle contains the model's bytes or its path.

        Raises
        ------
        UnsupportedError
            If the device is not the CPU, if ONNX Runtime refuses the model, or if it is not installed and dmlcpu cannot
            run all nodes.
        BindingError
            If bytes or a file contain no model, or `take` has another value.
        TypeError
            If `model` or `take` has another type.
        """
        if not cls.supports_device(device):
            raise UnsupportedError(NAME, "device", repr(device), "'CPU'")
        return BackendRep(model, Wanted(take, qdq, exact))

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
            As for `prepare`.

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
            One array for each input that the node names.
        device : str, default "CPU"
            In ONNX's notation.
        outputs_info : optional
            ONNX's interface declares it; `run_node` ignores it.
        **kwargs
            `opset_version`: the version of the node's domain; by default that of the operator's newest version in the
            package onnx.

        Returns
        -------
        tuple
            The node's outputs.

        Raises
        ------
        UnsupportedError
            If the device is not the CPU, or the operator is unknown.
        """
        names = [name for name in node.input if name]
        arrays = [np.asarray(each) for each in ([inputs] if isinstance(inputs, np.ndarray) else inputs)]
        if len(arrays) != len(names):
            raise BindingError(NAME, "inputs", f"{len(arrays)} arrays", f"{len(names)}, for {_listed(names)}")
        feeds = dict(zip(names, arrays, strict=True))
        domain = "" if node.domain == "ai.onnx" else node.domain
        newest = onnx.defs.get_schema(node.op_type, domain).since_version if onnx.defs.has(node.op_type, domain) else 1
        opsets = {domain: kwargs.get("opset_version") or newest}
        return cls.prepare(model_of_node(node, feeds, opsets), device, take=ALL).run(feeds)

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


def _declared(kind: onnx.TypeProto) -> Tensor | None:
    """Return the declared type and shape of a tensor; None if the value is not a tensor."""
    if kind.WhichOneof("value") not in ("tensor_type", None):
        return None
    tensor = kind.tensor_type
    dtype = np.dtype(helper.tensor_dtype_to_np_dtype(tensor.elem_type)) if tensor.elem_type else None
    return Tensor(dtype, tuple(map(_declared_size, tensor.shape.dim)) if tensor.HasField("shape") else None)


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
    if dtype is not None and array is not value and array.dtype != dtype:  # a list, or a number: its values count
        with np.errstate(all="ignore"), contextlib.suppress(TypeError, ValueError):
            converted = array.astype(dtype)
            is_same = np.can_cast(array.dtype, dtype, "same_kind") or np.array_equal(converted, array)
            array = converted if is_same else array
    # Types that NumPy does not have itself stand for others in older versions of the package onnx.
    if dtype is not None and array.dtype != dtype and dtype.kind in "biufc" and array.dtype.kind != "V":
        raise BindingError(NAME, f"{field}.dtype", str(array.dtype), str(dtype))
    if dtype is not None and dtype.kind in "OUS" and array.dtype.kind not in "OUS":
        raise BindingError(NAME, f"{field}.dtype", str(array.dtype), "strings")
    if array.dtype.kind == "U":  # it cuts strings that are longer than its longest
        array = array.astype(object)
    if not tensor.fits(array.shape):
        raise BindingError(NAME, f"{field}.shape", str(array.shape), str(tensor))
    return array


def _listed(names: Any) -> str:
    return ", ".join(names) or "nothing: the model has no inputs"


def _check_take(take: Any) -> None:
    if isinstance(take, str) and take not in (AUTO, ALL):
        raise BindingError(NAME, "take", repr(take), f"{AUTO!r}, {ALL!r}, a sequence of names")
    if not isinstance(take, Sequence) or not all(isinstance(name, str) for name in take):
        raise TypeError(f"onnx: take is {type(take).__name__}; allowed: {AUTO!r}, {ALL!r}, a sequence of names")
