"""What a model runs: one ONNX Runtime session, or these kernels for some nodes and sessions for the rest."""

import contextlib
import logging
from collections import Counter
from collections.abc import Iterable
from typing import Any, TypeAlias

import onnx
from onnx import numpy_helper

from dmlcpu.errors import DmlError, UnsupportedError
from dmlcpu.interop.onnx.choice import ALL, AUTO, TAKEN, Values, Wanted, candidates, chosen, saturating
from dmlcpu.interop.onnx.cut import Part, cut, model_of
from dmlcpu.interop.onnx.graphs import NAME, completed, constants_of, model_nodes, name_of, nested, result_of
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
_JOINED = "ONNX Runtime joins it with its neighbors"
_LEFT = {"QuantizeLinear": _JOINED, "DequantizeLinear": _JOINED, "DynamicQuantizeLinear": "other nodes read its result"}
_Counts: TypeAlias = dict[str, Counter[str]]  # by what runs the nodes: operator -> nodes; passed on: reason -> nodes


class Program:
    """What a model runs: steps in order, or the session of the whole model."""

    def __init__(self, source: Source, wanted: Wanted, options: Any = None) -> None:
        self.counts: _Counts = {who: Counter() for who in (DMLCPU, ONNXRUNTIME, PASSED_ON)}
        self.session: Any = None
        self._values: dict[str, Any] = {}  # defaults of inputs, and results that are constant
        self._results = [each.name for each in source.proto.graph.output]
        # What runs a step, its inputs, its outputs, and which of both no later step reads.
        self._steps: list[tuple[Any, list[str], list[str], list[str]]] = []
        self._options = options
        is_installed = runtime() is not None
        self._saturating = saturating(source) if is_installed else set()
        self._exact = _EXACT if wanted.exact else _ALLOWED
        if not is_installed:
            self._run_alone(source, qdq=wanted.qdq)
        elif not self._cut(source, wanted):
            try:
                self.session = self._session(source.given)
            except Exception as error:  # ONNX Runtime's errors have no class in common
                found = f"invalid for ONNX Runtime ({_first_line(error)})"
                raise UnsupportedError(NAME, "model", found, "models that ONNX Runtime runs") from error
            for each in (source.proto.graph, *source.proto.functions):
                self._count(each.node, whole=True)

    def run(self, feeds: dict[str, Any]) -> list[Any]:
        """Return the model's outputs, in its order."""
        values = {**self._values, **feeds}
        for runner, inputs, outputs, last in self._steps:
            results = runner.run(None, {name: values[name] for name in inputs if name in values})
            values.update(zip(outputs, results, strict=True))
            for name in last:
                values.pop(name, None)
        return [values[name] for name in self._results]

    def _run_alone(self, source: Source, *, qdq: bool) -> None:
        """Run all nodes on these kernels, because ONNX Runtime is not installed."""
        model = completed(source.proto)
        join(model, qdq=qdq)
        if others := {name_of(node) for node in model.graph.node} - BY_NAME.keys():
            allowed = f"without the package onnxruntime {', '.join(sorted(BY_NAME))}: pip install onnxruntime"
            raise UnsupportedError(NAME, "a node", ", ".join(sorted(others)), allowed)
        types = {each.name: each.type for each in (*model.graph.input, *model.graph.output)}
        self._add(cut(model.graph, constants_of(model.graph), lambda _: True), model, source, types)

    def _cut(self, source: Source, wanted: Wanted) -> bool:
        """Cut a model into steps; return False if it is better whole, or cannot be cut."""
        names = TAKEN | ({"MatMul"} if wanted.qdq else set())
        if wanted.take in (AUTO, ALL) and not any(name_of(node) in names for node in model_nodes(source.proto)):
            return False
        try:
            model = completed(source.proto)
            joined = {name for node in model.graph.node if name_of(node) == "QuantizeLinear" for name in node.output}
            join(model, qdq=wanted.qdq)
            types = types_of(model, source)
            values = Values(model.graph, types, joined)
            taken = chosen(values, wanted, get_num_threads())
            if taken:
                parts = cut(model.graph, values.constants, lambda node: result_of(node) in taken)
                self._add(parts, model, source, types)
        except DmlError:
            raise
        except Exception as error:  # from ONNX or ONNX Runtime, whose errors have no class in common
            _log.info("onnx: a model is not cut: %s", error)
            self.counts[PASSED_ON][f"left whole: it cannot be cut ({_first_line(error)})"] += 1
            return False
        for node in candidates(values):
            if result_of(node) not in taken:
                self.counts[PASSED_ON][f"{name_of(node) if taken else 'left whole'}: {_FASTER}"] += 1
        return bool(taken)

    def _add(self, parts: list[Part], model: onnx.ModelProto, source: Source, types: dict[str, onnx.TypeProto]) -> None:
        """Make the steps of parts."""
        constants, kept = constants_of(model.graph), {*self._results, *(each.name for each in model.graph.input)}
        for each in model.graph.initializer:
            if each.name in kept:
                self._values[each.name] = numpy_helper.to_array(each, source.folder)
        later = {*self._results}
        for part in reversed(parts):
            for name in {*part.inputs, *part.outputs} - types.keys():
                raise TypeError(f"ONNX Runtime does not exchange {name!r} with NumPy")
            small = model_of(part, model, constants, types)
            if part.is_ours:
                onnx.load_external_data_for_model(small, source.folder)
                runner: Any = Kernels(small)
            else:
                runner = self._session(small.SerializeToString(), source.folder)
            used = [*part.inputs, *part.outputs]
            last = [name for name in used if name not in later]
            self._steps.insert(0, (runner, part.inputs, part.outputs, last))
            later.update(used)
        for part in parts:
            if part.is_ours:
                self.counts[DMLCPU].update(map(name_of, part.nodes))
            else:
                self._count(part.nodes, whole=False)
        for function in model.functions:
            self._count(function.node, whole=True)

    def _session(self, given: bytes | str, folder: str | None = None) -> Any:
        """Return a session, exact if products may saturate: ONNX Runtime refuses that if it also has int8 by int8."""
        if not self._saturating or self._exact == _ALLOWED:
            return session_of(given, self._options, folder=folder)
        with contextlib.suppress(Exception):  # its errors have no class in common
            return session_of(given, self._options, folder=folder, exact=True)
        self._exact = _INEXACT
        return session_of(given, self._options, folder=folder, exact=False)

    def _count(self, nodes: Iterable[onnx.NodeProto], *, whole: bool) -> None:
        """Count nodes that ONNX Runtime runs, and those inside them; in parts of a model, with the reason."""
        passed = self.counts[PASSED_ON]
        for node in nodes:
            if not whole and (why := _LEFT.get(name_of(node))):
                passed[f"{name_of(node)}: {why}"] += 1
            for each in nested([node]):
                name = name_of(each)
                self.counts[ONNXRUNTIME][name] += 1
                if not self._saturating.isdisjoint(each.input):
                    passed[f"{name}: {self._exact}"] += 1
                if each is not node and name in TAKEN:
                    passed[f"{name}: in {node.op_type}, which runs whole"] += 1


def _first_line(error: Exception) -> str:
    """Return what a report says about an error."""
    return next(iter(str(error).splitlines()), type(error).__name__)
