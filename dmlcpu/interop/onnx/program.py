"""What a model runs: one ONNX Runtime session, or these kernels for some nodes and sessions for the rest."""

import contextlib
import logging
from collections import Counter
from collections.abc import Sequence
from types import ModuleType
from typing import Any, NamedTuple, Protocol, TypeAlias

import onnx
from onnx import numpy_helper

from dmlcpu.errors import DmlError, UnsupportedError
from dmlcpu.interop.onnx.choice import ALL, AUTO, TAKEN, Values, Wanted, candidates, chosen, saturating
from dmlcpu.interop.onnx.costs import cost_of_cut
from dmlcpu.interop.onnx.cut import Part, cut, model_of
from dmlcpu.interop.onnx.graphs import NAME, completed, constants_of, model_nodes, name_of, nodes_inside, result_of
from dmlcpu.interop.onnx.kernels import Kernels
from dmlcpu.interop.onnx.loading import Source
from dmlcpu.interop.onnx.ops import BY_NAME
from dmlcpu.interop.onnx.patterns import join
from dmlcpu.interop.onnx.runtime import runtime, session_of, types_of
from dmlcpu.runtime.threads import get_num_threads

_log = logging.getLogger("dmlcpu")

DMLCPU, ONNXRUNTIME, PASSED_ON = "dmlcpu", "onnxruntime", "passed on"
# Why nodes run in ONNX Runtime, or how.
_EXACT = "ONNX Runtime is set to be exact"
_INEXACT = "it may saturate: ONNX Runtime refuses to be exact in a model that also multiplies int8 by int8"
_ALLOWED = "it may saturate, as exact=False allows"
_FASTER = "ONNX Runtime is faster here"
_JOINED = "ONNX Runtime joins it with its neighbours"
_LEFT = {"QuantizeLinear": _JOINED, "DequantizeLinear": _JOINED, "DynamicQuantizeLinear": "other nodes read its result"}
_Counts: TypeAlias = dict[str, Counter[str]]  # by what runs the nodes: operator -> nodes; passed on: reason -> nodes


class _Runner(Protocol):
    """What a step of a model calls, as ONNX Runtime's sessions are called."""

    def run(self, names: None, feeds: dict[str, Any]) -> list[Any]:
        """Return all outputs, in order."""


class _Step(NamedTuple):
    runner: _Runner
    inputs: list[str]
    outputs: list[str]
    last: list[str]  # inputs and outputs that no later step reads


class Program:
    """What a model runs, in order.

    Attributes
    ----------
    session : onnxruntime.InferenceSession or None
        The session of the whole model, if these kernels run none of its nodes.
    """

    def __init__(self, source: Source, wanted: Wanted, options: Any = None) -> None:
        self.counts: _Counts = {who: Counter() for who in (DMLCPU, ONNXRUNTIME, PASSED_ON)}
        self.session: Any = None
        self._values: dict[str, Any] = {}  # defaults of inputs, and results that are constant
        self._results = [each.name for each in source.proto.graph.output]
        self._steps: list[_Step] = []
        package = runtime()
        self._saturating = saturating(source) if package else set()
        self._exact = _EXACT if wanted.exact else _ALLOWED
        if package is None:
            self._run_alone(source, qdq=wanted.qdq)
        elif not self._cut(package, source, wanted, options):
            self.counts[DMLCPU].clear()
            try:
                self.session = self._session(package, source.given, options)
            except Exception as error:  # ONNX Runtime's errors have no class in common
                found = f"invalid for ONNX Runtime ({_first_line(error)})"
                raise UnsupportedError(NAME, "model", found, "models that ONNX Runtime runs") from error
            self._count(source.proto.graph.node, source.proto)

    def run(self, feeds: dict[str, Any]) -> list[Any]:
        """Return the model's outputs, in its order."""
        values = {**self._values, **feeds}
        for step in self._steps:
            results = step.runner.run(None, {name: values[name] for name in step.inputs if name in values})
            values.update(zip(step.outputs, results, strict=True))
            for name in step.last:
                values.pop(name, None)
        return [values[name] for name in self._results]

    def _run_alone(self, source: Source, *, qdq: bool) -> None:
        """Run all nodes on these kernels, because ONNX Runtime is not installed."""
        model = completed(source.proto)
        join(model, qdq=qdq)
        if others := {name_of(node) for node in model.graph.node} - BY_NAME.keys():
            allowed = f"without the package onnxruntime {', '.join(sorted(BY_NAME))}: pip install onnxruntime"
            raise UnsupportedError(NAME, "a node", ", ".join(sorted(others)), allowed)
        types = {each.name: each.type for each in model.graph.input}
        self._add([Part(True, [*model.graph.node], [*types], self._results)], model, source, types)

    def _cut(self, package: ModuleType, source: Source, wanted: Wanted, options: Any) -> bool:
        """Cut a model into steps; return False if it is better whole, or cannot be cut."""
        names = TAKEN | ({"MatMul"} if wanted.qdq else set())
        if wanted.take in (AUTO, ALL) and not any(name_of(node) in names for node in model_nodes(source.proto)):
            return False
        try:
            model = completed(source.proto)
            graph = model.graph
            joined = {name for node in graph.node if name_of(node) == "QuantizeLinear" for name in node.output}
            join(model, qdq=wanted.qdq)
            types = types_of(package, model, source)
            values = Values(graph, types, joined)
            threads = get_num_threads()
            taken = chosen(values, wanted, threads, lambda: cost_of_cut(package, threads))
            parts = cut(graph, values.constants, lambda node: result_of(node) in taken)
            if not taken:
                self.counts[PASSED_ON][f"left whole: {_FASTER}"] += len(candidates(values))
                return False
            self._add(parts, model, source, types, package, options)
        except DmlError:
            raise
        except Exception as error:  # from ONNX or ONNX Runtime, whose errors have no class in common
            _log.info("onnx: a model is not cut: %s", error)
            self.counts[PASSED_ON][f"left whole: it cannot be cut ({_first_line(error)})"] += 1
            return False
        self._count([node for part in parts if not part.is_ours for node in part.nodes], None)
        for node in candidates(values):
            self.counts[PASSED_ON][f"{name_of(node)}: {_FASTER}"] += result_of(node) not in taken
        return True

    def _add(
        self,
        parts: list[Part],
        model: onnx.ModelProto,
        source: Source,
        types: dict[str, onnx.TypeProto],
        package: Any = None,
        options: Any = None,
    ) -> None:
        """Make the steps of parts."""
        constants = constants_of(model.graph)
        inputs = {each.name for each in model.graph.input}
        defaults = {each.name: each for each in model.graph.initializer if each.name in inputs}
        results = {name: constants[name] for name in self._results if name in constants}
        self._values = {name: numpy_helper.to_array(each, source.folder) for name, each in (defaults | results).items()}
        steps, later = [], {*self._results}
        for part in reversed(parts):
            for name in {*part.inputs, *(part.outputs if package else ())} - types.keys():
                raise TypeError(f"ONNX Runtime does not exchange {name!r} with NumPy")
            small = model_of(part, model, constants, types)
            if part.is_ours:
                onnx.load_external_data_for_model(small, source.folder)
                runner: _Runner = Kernels(small)
                self.counts[DMLCPU].update(map(name_of, part.nodes))
            else:
                runner = self._session(package, small.SerializeToString(), options, source.folder)
            used = [*part.inputs, *part.outputs]
            steps.append(_Step(runner, part.inputs, part.outputs, [name for name in used if name not in later]))
            later.update(used)
        self._steps = steps[::-1]

    def _session(self, package: ModuleType, given: bytes | str, options: Any, folder: str | None = None) -> Any:
        """Return a session, exact if products may saturate: ONNX Runtime refuses that if it also has int8 by int8."""
        if not self._saturating or self._exact == _ALLOWED:
            return session_of(package, given, options, folder=folder)
        with contextlib.suppress(Exception):  # its errors have no class in common
            return session_of(package, given, options, folder=folder, exact=True)
        self._exact = _INEXACT
        return session_of(package, given, options, folder=folder, exact=False)

    def _count(self, nodes: Sequence[onnx.NodeProto], whole: onnx.ModelProto | None) -> None:
        """Count nodes that ONNX Runtime runs; in parts of a model, with the reason."""
        found = [*model_nodes(whole)] if whole else [each for node in nodes for each in (node, *nodes_inside(node))]
        for node in found:
            self.counts[ONNXRUNTIME][name_of(node)] += 1
            if not self._saturating.isdisjoint(node.input):
                self.counts[PASSED_ON][f"{name_of(node)}: {self._exact}"] += 1
        for node in nodes:
            if whole is None and (why := _LEFT.get(name_of(node))):
                self.counts[PASSED_ON][f"{name_of(node)}: {why}"] += 1
            for inner in nodes_inside(node):
                if name_of(inner) in TAKEN:
                    self.counts[PASSED_ON][f"{name_of(inner)}: in {node.op_type}, which runs whole"] += 1


def _first_line(error: Exception) -> str:
    """Return what a report says about an error."""
    return next(iter(str(error).splitlines()), type(error).__name__)
