"""What a model runs: these kernels for their operators, and ONNX Runtime or ONNX's evaluator for the rest."""

import logging
from collections import Counter
from types import ModuleType
from typing import Any, NamedTuple, Protocol, TypeAlias

import onnx
from onnx import inliner, numpy_helper

from dmlcpu.errors import UnsupportedError
from dmlcpu.interop.onnx.cut import TAKEN, WHY_LEFT, cut, difference, model_of, ours
from dmlcpu.interop.onnx.evaluator import NAME, Evaluator, evaluator_of
from dmlcpu.interop.onnx.graphs import constants_of, described, name_of, nodes_inside, result_of, with_initializers
from dmlcpu.interop.onnx.ops import OPS
from dmlcpu.interop.onnx.patterns import join
from dmlcpu.interop.onnx.runtime import runtime, session_of, types_of

_log = logging.getLogger("dmlcpu")

DMLCPU, ONNXRUNTIME, EVALUATOR, PASSED_ON = "dmlcpu", "onnxruntime", "evaluator", "passed on"
AUTO = "auto"
RESTS = (AUTO, ONNXRUNTIME, EVALUATOR)
_KEPT = 256 << 20  # bytes of a part that is kept with its session, for inputs that ONNX Runtime refuses
_Counts: TypeAlias = dict[str, Counter[str]]  # by what runs the nodes: operator -> nodes; passed on: reason -> nodes


class _Runner(Protocol):
    """What a step of a model calls, as ONNX Runtime's sessions and ONNX's evaluator are called."""

    def run(self, names: None, feeds: dict[str, Any]) -> list[Any]:
        """Return all outputs, in order."""


class _OrEvaluated:
    """A part in ONNX Runtime; in the evaluator for inputs that ONNX Runtime refuses and the evaluator takes."""

    def __init__(self, session: _Runner, model: onnx.ModelProto, counts: _Counts) -> None:
        self._session, self._model, self._counts = session, model, counts
        self._evaluator: _Runner | None = None

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
            reason = f"to the evaluator, in a run: {_first_line(refusal)}"
            if reason not in self._counts[PASSED_ON]:
                self._counts[PASSED_ON][reason] = len(self._model.graph.node)
            return results


class _Kernels:
    """Nodes that ONNX Runtime does not run, called without the evaluator's steps between them, which take longer."""

    def __init__(self, evaluator: Evaluator) -> None:
        self._constants = {"": None, **evaluator.rt_inits_}
        self._outputs = evaluator.output_names
        self._calls = []
        for node in evaluator.rt_nodes_:
            attributes = {name: getattr(node, name) for name in node.attributes_names_}
            self._calls.append((node, attributes, tuple(node.input), tuple(node.output)))

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


class _Step(NamedTuple):
    runner: _Runner
    inputs: list[str]
    outputs: list[str]
    last: list[str]  # inputs and outputs that no later step reads


class Program:
    """What a model runs, in order."""

    def __init__(self, model: onnx.ModelProto, rest: str, *, qdq: bool) -> None:
        self.counts: _Counts = {who: Counter() for who in (DMLCPU, ONNXRUNTIME, EVALUATOR, PASSED_ON)}
        self._values: dict[str, Any] = {}  # of inputs that are not given, and of results that are constant
        self._results = [each.name for each in model.graph.output]
        package = runtime() if rest != EVALUATOR else None
        if package is None and rest == ONNXRUNTIME:
            raise UnsupportedError(NAME, "rest", "'onnxruntime', which is not installed", "'auto', 'evaluator'")
        self._rest = rest
        if package is not None:
            self._steps = self._cut(package, with_initializers(_inlined(model)), qdq=qdq)
        else:
            model = join(with_initializers(model), qdq=qdq)
            self._steps = [self._whole(self._evaluated(model), model)]
        is_alone = [step.outputs for step in self._steps] == [self._results]
        self._alone = self._steps[0].runner if is_alone and not self._values else None

    def run(self, feeds: dict[str, Any]) -> list[Any]:
        """Return the model's outputs, in its order."""
        if self._alone:
            return self._alone.run(None, feeds)
        values = {**self._values, **feeds}
        for step in self._steps:
            results = step.runner.run(None, {name: values[name] for name in step.inputs if name in values})
            values.update(zip(step.outputs, results, strict=True))
            for name in step.last:
                values.pop(name, None)
        return [values[name] for name in self._results]

    def _whole(self, runner: _Runner, model: onnx.ModelProto) -> _Step:
        return _Step(runner, [each.name for each in model.graph.input], self._results, [])

    def _cut(self, package: ModuleType, plain: onnx.ModelProto, *, qdq: bool) -> list[_Step]:
        """Return the steps of a model of which ONNX Runtime runs all but the nodes of these kernels."""
        model = join(plain, qdq=qdq)
        graph = model.graph
        taken = ours(graph)
        constants = constants_of(graph)
        if self._rest == AUTO:
            for node in graph.node:
                if why := difference(node, constants):
                    taken.add(result_of(node))
                    self.counts[PASSED_ON][f"{name_of(node)}: {why}"] += 1
        parts = cut(graph, constants, lambda node: result_of(node) in taken)
        if not any(part.is_ours for part in parts):
            return [self._whole(self._session(package, model, is_alone=True), model)]
        try:  # of the plain model, because ONNX does not know the operator that takes the place of others
            types = types_of(package, plain, {name for part in parts for name in (*part.inputs, *part.outputs)})
        except Exception as error:  # ONNX Runtime's errors have no class in common
            return [self._whole(self._left(error, model), model)]
        given = {each.name for each in graph.input}
        defaults = {each.name: each for each in graph.initializer if each.name in given}
        results = {name: constants[name] for name in self._results if name in constants}
        self._values = {name: numpy_helper.to_array(each) for name, each in (defaults | results).items()}
        steps, later = [], {*self._results}
        for part in reversed(parts):
            small = model_of(part, model, constants, types)
            runner = _Kernels(self._evaluated(small)) if part.is_ours else self._session(package, small, is_alone=False)
            used = [*part.inputs, *part.outputs]
            steps.append(_Step(runner, part.inputs, part.outputs, [name for name in used if name not in later]))
            later.update(used)
        return steps[::-1]

    def _session(self, package: ModuleType, model: onnx.ModelProto, *, is_alone: bool) -> _Runner:
        """Return nodes in ONNX Runtime; in the evaluator if it cannot run them, unless only it is allowed."""
        try:
            session: _Runner = session_of(package, model, is_alone=is_alone)
        except Exception as error:  # as above
            return self._left(error, model)
        for node in model.graph.node:
            self.counts[ONNXRUNTIME][name_of(node)] += 1
            if why := WHY_LEFT.get(name_of(node)):
                self.counts[PASSED_ON][f"{name_of(node)}: {why}"] += 1
            for inner in nodes_inside(node):
                self.counts[ONNXRUNTIME][name_of(inner)] += 1
                if name_of(inner) in TAKEN:
                    self.counts[PASSED_ON][f"{name_of(inner)}: in {node.op_type}, which runs whole"] += 1
        may_move = self._rest == AUTO and model.ByteSize() <= _KEPT
        return _OrEvaluated(session, model, self.counts) if may_move else session

    def _left(self, error: Exception, model: onnx.ModelProto) -> _Runner:
        """Return in the evaluator what ONNX Runtime cannot run, or refuse it if only that is allowed."""
        reason = _first_line(error)
        if self._rest == ONNXRUNTIME:
            found = f"'onnxruntime', which cannot run a part ({reason})"
            raise UnsupportedError(NAME, "rest", found, "'auto', 'evaluator'") from error
        _log.info("onnx: ONNX Runtime cannot run %d nodes, ONNX's evaluator does: %s", len(model.graph.node), reason)
        self.counts[PASSED_ON][f"to the evaluator: {reason}"] += len(model.graph.node)
        return self._evaluated(model)

    def _evaluated(self, model: onnx.ModelProto) -> Evaluator:
        """Return an evaluator of a model; its nodes are counted."""
        evaluator = evaluator_of(model)
        for node, _ in evaluator.walk({}):
            self.counts[DMLCPU if isinstance(node, tuple(OPS)) else EVALUATOR][name_of(node.onnx_node)] += 1
        return evaluator


def _inlined(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model without functions; the same model if it has none."""
    if not model.functions:
        return model
    found = inliner.inline_local_functions(model)
    known = {each.domain for each in found.opset_import}
    more = {each.domain: each for function in model.functions for each in function.opset_import}
    found.opset_import.extend(each for domain, each in more.items() if domain not in known)
    return found


def _first_line(error: Exception) -> str:
    """Return what a report says of an error."""
    return next(iter(str(error).splitlines()), type(error).__name__)
