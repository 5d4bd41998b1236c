"""What runs the parts of a model: these kernels, ONNX Runtime or ONNX's evaluator."""

from collections import Counter
from collections.abc import Iterable
from typing import Any, Protocol, TypeAlias

import onnx
from onnx.reference.op_run import OpRun

from dmlcpu.interop.onnx.evaluator import evaluator_of
from dmlcpu.interop.onnx.graphs import described, name_of
from dmlcpu.interop.onnx.ops import OPS

DMLCPU, ONNXRUNTIME, EVALUATOR, PASSED_ON = "dmlcpu", "onnxruntime", "evaluator", "passed on"
Counts: TypeAlias = dict[str, Counter[str]]


class Runner(Protocol):
    """What a step of a model calls, as ONNX Runtime's sessions and ONNX's evaluator are called."""

    def run(self, names: None, feeds: dict[str, Any]) -> list[Any]:
        """Return all outputs, in order."""


def count(nodes: Iterable[OpRun], counts: Counts) -> None:
    """Count nodes of the evaluator by what runs them."""
    for node in nodes:
        counts[DMLCPU if isinstance(node, tuple(OPS)) else EVALUATOR][name_of(node.onnx_node)] += 1


class OrEvaluated:
    """A part in ONNX Runtime; in the evaluator for inputs that ONNX Runtime refuses and the evaluator takes."""

    def __init__(self, session: Runner, model: onnx.ModelProto, counts: Counts) -> None:
        self._session, self._model, self._counts = session, model, counts
        self._evaluator: Runner | None = None

    def run(self, names: None, feeds: dict[str, Any]) -> list[Any]:
        """Return all outputs, in order."""
        try:
            return self._session.run(names, feeds)
        except Exception as refusal:  # ONNX Runtime's errors have no class in common
            try:
                self._evaluator = self._evaluator or evaluator_of(self._model)
                results = self._evaluator.run(names, feeds)
            except Exception:  # of any operator
                raise refusal from None
            reason = f"to the evaluator, in a run: {first_line(refusal)}"
            if reason not in self._counts[PASSED_ON]:
                self._counts[PASSED_ON][reason] = len(self._model.graph.node)
            return results


class Kernels:
    """Nodes that ONNX Runtime does not run, called without the evaluator's steps between them, which take longer."""

    def __init__(self, model: onnx.ModelProto, counts: Counts) -> None:
        evaluator = evaluator_of(model)
        self._constants = {"": None, **evaluator.rt_inits_}
        self._outputs = evaluator.output_names
        self._calls = []
        for node in evaluator.rt_nodes_:
            attributes = {name: getattr(node, name) for name in node.attributes_names_}
            self._calls.append((node, attributes, tuple(node.input), tuple(node.output)))
        count(evaluator.rt_nodes_, counts)

    def run(self, names: None, feeds: dict[str, Any]) -> list[Any]:
        """Return all outputs, in order."""
        values = self._constants | feeds
        for node, attributes, inputs, outputs in self._calls:
            try:
                results = node._run(*[values[name] for name in inputs], **attributes)
            except Exception as error:
                error.add_note(described(node.onnx_node))
                raise
            values.update(zip(outputs, results, strict=False))  # some may have no name, and the last no place
            values[""] = None
        return [values[name] for name in self._outputs]


def first_line(error: Exception) -> str:
    """Return what a report says of an error."""
    return next(iter(str(error).splitlines()), type(error).__name__)
