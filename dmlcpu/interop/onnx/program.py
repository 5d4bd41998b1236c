"""What a model runs: these kernels for their operators, and ONNX Runtime or ONNX's evaluator for the rest."""

import logging
from collections import Counter
from types import ModuleType
from typing import Any, NamedTuple

import onnx
from onnx import inliner, numpy_helper

from dmlcpu.errors import UnsupportedError
from dmlcpu.interop.onnx.cut import TAKEN, cut, difference, model_of, ours, why_left
from dmlcpu.interop.onnx.evaluator import NAME, evaluator_of
from dmlcpu.interop.onnx.graphs import constants_of, name_of, nodes_inside, result_of, with_initializers
from dmlcpu.interop.onnx.patterns import join
from dmlcpu.interop.onnx.runners import (
    DMLCPU,
    EVALUATOR,
    ONNXRUNTIME,
    PASSED_ON,
    Counts,
    Kernels,
    OrEvaluated,
    Runner,
    count,
    first_line,
)
from dmlcpu.interop.onnx.runtime import check_types, runtime, session_of, types_of

_log = logging.getLogger("dmlcpu")

AUTO = "auto"
RESTS = (AUTO, ONNXRUNTIME, EVALUATOR)
_KEPT = 256 << 20  # bytes of a part that is kept with its session, for inputs that ONNX Runtime refuses


class _Step(NamedTuple):
    runner: Runner
    inputs: list[str]
    outputs: list[str]
    last: list[str]  # inputs and outputs that no later step reads


class Program:
    """What a model runs, in order."""

    def __init__(self, model: onnx.ModelProto, rest: str, *, qdq: bool) -> None:
        # Who runs how many nodes of each operator, and how many are passed on for each reason.
        self.counts: Counts = {who: Counter() for who in (DMLCPU, ONNXRUNTIME, EVALUATOR, PASSED_ON)}
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

    def _whole(self, runner: Runner, model: onnx.ModelProto) -> _Step:
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
            runner = Kernels(small, self.counts) if part.is_ours else self._session(package, small, is_alone=False)
            used = [*part.inputs, *part.outputs]
            steps.append(_Step(runner, part.inputs, part.outputs, [name for name in used if name not in later]))
            later.update(used)
        return steps[::-1]

    def _session(self, package: ModuleType, model: onnx.ModelProto, *, is_alone: bool) -> Runner:
        """Return nodes in ONNX Runtime; in the evaluator if it cannot run them, unless only it is allowed."""
        try:
            check_types(model)
            session: Runner = session_of(package, model, is_alone=is_alone)
        except Exception as error:  # as above
            return self._left(error, model)
        for node in model.graph.node:
            self.counts[ONNXRUNTIME][name_of(node)] += 1
            if why := why_left(node):
                self.counts[PASSED_ON][f"{name_of(node)}: {why}"] += 1
            for inner in nodes_inside(node):
                self.counts[ONNXRUNTIME][name_of(inner)] += 1
                if name_of(inner) in TAKEN:
                    self.counts[PASSED_ON][f"{name_of(inner)}: in {node.op_type}, which runs whole"] += 1
        may_move = self._rest == AUTO and model.ByteSize() <= _KEPT
        return OrEvaluated(session, model, self.counts) if may_move else session

    def _left(self, error: Exception, model: onnx.ModelProto) -> Runner:
        """Return in the evaluator what ONNX Runtime cannot run, or refuse it if only that is allowed."""
        reason = first_line(error)
        if self._rest == ONNXRUNTIME:
            found = f"'onnxruntime', which cannot run a part ({reason})"
            raise UnsupportedError(NAME, "rest", found, "'auto', 'evaluator'") from error
        _log.info("onnx: ONNX Runtime cannot run %d nodes, ONNX's evaluator does: %s", len(model.graph.node), reason)
        self.counts[PASSED_ON][f"to the evaluator: {reason}"] += len(model.graph.node)
        return self._evaluated(model)

    def _evaluated(self, model: onnx.ModelProto) -> Runner:
        evaluator = evaluator_of(model)
        count((node for node, _ in evaluator.walk({})), self.counts)
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
