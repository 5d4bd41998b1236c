"""What runs the parts of a model: these kernels, ONNX Runtime or ONNX's evaluator."""

from collections import Counter
from typing import Any, Protocol, TypeAlias

import onnx
from onnx.reference.op_run import OpRun

from dmlcpu.interop.onnx.evaluator import evaluator_of
from dmlcpu.interop.onnx.graphs import described, name_of
from dmlcpu.interop.onnx.ops import OPS
from dmlcpu.interop.onnx.runtime import Session

DMLCPU, ONNXRUNTIME, EVALUATOR, PASSED_ON = "dmlcpu", "onnxruntime", "evaluator", "passed on"
Counts: TypeAlias = dict[str, Counter[str]]


class Runner(Protocol):
    """What a step of a model calls."""

    def run(self, feeds: dict[str, Any]) -> list[Any]:
        """Return the outputs, in order."""


class Evaluated:
    """A model, or a part of one, in ONNX's evaluator with these operators."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self._evaluator = evaluator_of(model)
        self._evaluator.pack_weights({}, {}, set())

    def run(self, feeds: dict[str, Any]) -> list[Any]:
        """Return the outputs, in order."""
        return list(self._evaluator.run(None, feeds))

    def count(self, counts: Counts) -> None:
        """Count the nodes by what runs them."""
        for node in self._evaluator.nodes():
            counts[_who(node)][name_of(node.onnx_node)] += 1


def _who(node: OpRun) -> str:
    return DMLCPU if isinstance(node, tuple(OPS)) else EVALUATOR


class OrEvaluated:
    """A part in ONNX Runtime; in the evaluator for inputs that ONNX Runtime refuses and the evaluator takes."""

    def __init__(self, session: Session, model: onnx.ModelProto, counts: Counts) -> None:
        self._session, self._model, self._counts = session, model, counts
        self._evaluated: Evaluated | None = None

    def run(self, feeds: dict[str, Any]) -> list[Any]:
        """Return the outputs, in order."""
        try:
            return self._session.run(feeds)
        except Exception as refusal:  # ONNX Runtime's errors have no class in common
            results = self._instead(feeds)
            if results is None:
                raise
            reason = f"to the evaluator, in a run: {first_line(refusal)}"
            if reason not in self._counts[PASSED_ON]:
                self._counts[PASSED_ON][reason] = len(self._model.graph.node)
            return results

    def _instead(self, feeds: dict[str, Any]) -> list[Any] | None:
        """Return the evaluator's results; None if it refuses the inputs, too."""
        try:
            self._evaluated = self._evaluated or Evaluated(self._model)
            return self._evaluated.run(feeds)
        except Exception:  # of any operator
            return None


class Kernels:
    """Nodes that ONNX Runtime does not run, called without the evaluator's steps between them, which take longer."""

    def __init__(self, model: onnx.ModelProto, counts: Counts) -> None:
        evaluator = evaluator_of(model)
        evaluator.pack_weights({}, {}, set())
        self._constants = {"": None, **evaluator.rt_inits_}
        self._outputs = evaluator.output_names
        self._calls = []
        for node in evaluator.rt_nodes_:
            attributes = {name: getattr(node, name) for name in node.attributes_names_}
            self._calls.append((node, attributes, tuple(node.input), tuple(node.output)))
            counts[_who(node)][name_of(node.onnx_node)] += 1

    def run(self, feeds: dict[str, Any]) -> list[Any]:
        """Return the outputs, in order."""
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
