"""ONNX's reference evaluator with these operators, and with constant weights packed."""

import copy
from collections.abc import Callable, Iterator, Mapping
from os import PathLike
from typing import Any, TypeAlias

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun
from onnx.reference.ops.op_constant import ConstantCommon

from dmlcpu.common.data_types import BYTE_TYPES
from dmlcpu.errors import BindingError, DmlError, UnsupportedError
from dmlcpu.interop.onnx.graphs import described, reads
from dmlcpu.interop.onnx.ops import OPS, Product
from dmlcpu.products.packing import PackedMatrix, pack_b

NAME = "onnx"  # the operator that errors name
LONG_DOMAIN = "ai.onnx"  # of ONNX's operators; usually their domain is empty

Model: TypeAlias = onnx.ModelProto | bytes | str | PathLike[str]


class Evaluator(ReferenceEvaluator):  # type: ignore[misc]
    """ONNX's evaluator, with these operators in subgraphs and functions, too, and weights that are packed."""

    def __init__(self, proto: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(proto, *args, **{**kwargs, "new_ops": OPS})
        for node in self.rt_nodes_:
            node.run = _naming(node)
        # Others may not be written: a result can be a view of one, and who changes it would change the model.
        ours = [node.onnx_node for node in self.rt_nodes_ if type(node) in OPS or node.has_subgraph]
        read = {name for node in ours for name in reads(node)}
        for name in read & self.rt_inits_.keys() - {*self.output_names}:
            value = self.rt_inits_[name]
            if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
                # What `numpy_helper` returns may not be written, and takes the long way.
                self.rt_inits_[name] = np.array(value, value.dtype.type, order="C")

    def walk(self, around: Mapping[str, Any]) -> Iterator[tuple[OpRun, Mapping[str, Any]]]:
        """Yield all nodes, with those of branches, loops and the model's functions, each place once.

        With each comes what is constant there, by name; around: that of the surrounding graphs.
        """
        constants = {**around, **self.rt_inits_}
        for name in self.input_names:  # an input may be given, so it is not constant
            constants.pop(name, None)
        own = list(self.functions_.values())
        for node in self.rt_nodes_:  # in the order in which they run
            if isinstance(node, ConstantCommon) and not node.has_linked_attribute:
                constants[node.output[0]] = node.run()[0]
            bodies = [each for each in vars(node).values() if isinstance(each, Evaluator)]
            is_call = any(body is each for body in bodies for each in own)
            if not is_call:
                yield node, constants
            if is_call or node.has_subgraph:
                for body in bodies:
                    yield from body.walk({} if is_call else constants)


def _naming(node: OpRun) -> Callable[..., Any]:
    """Return a node's method `run`, with the node's name added to errors."""
    run, proto = node.run, node.onnx_node

    def named(*inputs: Any, **options: Any) -> Any:
        try:
            return run(*inputs, **options)
        except Exception as error:
            error.add_note(described(proto))
            raise

    return named


def loaded(model: Model) -> onnx.ModelProto:
    """Return a valid model with its external data, and with the usual name of ONNX's domain."""
    if not isinstance(model, onnx.ModelProto | bytes | str | PathLike):
        allowed = "onnx.ModelProto, bytes, str, os.PathLike"
        raise TypeError(f"onnx: model is {type(model).__name__}; allowed: {allowed}")
    try:
        if isinstance(model, bytes):
            model = onnx.load_from_string(model)
        onnx.checker.check_model(model)  # a file may be larger than what can be checked in memory
        found = model if isinstance(model, onnx.ModelProto) else onnx.load(model)
    except DecodeError as error:
        raise BindingError(NAME, "model", f"unreadable ({error})", "an ONNX model") from error
    if any(each.domain == LONG_DOMAIN for each in found.opset_import):
        found = copy.deepcopy(found)
        for each in found.opset_import:
            each.domain = "" if each.domain == LONG_DOMAIN else each.domain
    return found


def evaluator_of(proto: Any, **options: Any) -> Evaluator:
    """Return an evaluator of a model or a graph with its weights packed, or refuse operators that it does not know."""
    try:
        evaluator = Evaluator(proto, **options)
    except DmlError:
        raise
    except (NotImplementedError, RuntimeError, ValueError) as error:  # of an operator, a version, or a sparse tensor
        reason = str(error).partition(",")[0].partition("\n")[0]  # a list of all operators follows
        allowed = "operators that ONNX's reference evaluator has"
        raise UnsupportedError(NAME, "a node", f"unknown ({reason})", allowed) from error
    packed: dict[int, PackedMatrix] = {}  # once for all nodes that read it
    for node, constants in evaluator.walk({}):
        b = constants.get(node.input[node.B]) if isinstance(node, Product) else None
        if isinstance(b, np.ndarray) and b.ndim >= 2 and b.dtype.name in BYTE_TYPES:
            if id(b) not in packed:
                packed[id(b)] = pack_b(b)
            node.packed = packed[id(b)]
    return evaluator
