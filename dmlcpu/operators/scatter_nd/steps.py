"""How a bound scatter_nd runs: the same plan on the same arrays."""

from collections.abc import Callable

import numpy as np

from dmlcpu.common.arguments import Array
from dmlcpu.common.bound import Steps
from dmlcpu.kernels import registry
from dmlcpu.kernels.scatter_nd.work import BEFOREHAND, SPECULATIVE, VALID
from dmlcpu.operators.scatter_nd.plan import Plan, run
from dmlcpu.runtime.kept_calls import KeptCall, kept_call
from dmlcpu.runtime.records import CELL
from dmlcpu.runtime.threads import Budget


def steps(
    plan_within: Callable[[Budget], Plan],
    refusal: Callable[[int], Exception],
    *words: Array,
    unlike: tuple[Array, Array] | None = None,
) -> Steps:
    """Return how to run on the words of the same arrays again and again; refusal: of an index at a place."""

    def planned(chosen: Plan) -> None:
        place = run(chosen, *words, unlike=unlike)
        if place != VALID:
            raise refusal(place)

    def alone(chosen: Plan) -> KeptCall | None:
        if not chosen.is_single or chosen.validate or chosen.partition or chosen.copy or unlike or chosen.targets.count:
            return None
        return _alone(chosen, *words)

    return Steps(plan_within, planned, alone)


def _alone(chosen: Plan, x: Array, indices: Array, updates: Array, out: Array) -> KeptCall:
    """Return how a plan of one kernel and one part is carried out in workspace of its own."""
    scratch, is_speculative = chosen.workspace.make(), chosen.validation == SPECULATIVE
    target = np.frombuffer(scratch, out.dtype, out.size, CELL * chosen.targets.cell) if is_speculative else out
    kernel = registry.find("scatter_nd", "apply", chosen.kernel).kernel
    kept = kept_call(kernel, x, indices, updates, target, chosen.work, scratch)
    call, reports = kept.again, chosen.validation != BEFOREHAND
    starts_from_out = is_speculative and not x.size

    def again() -> bool:
        if starts_from_out:
            target[...] = out
        call()
        if reports and scratch.item(0) != VALID:
            return False
        if is_speculative:
            out[...] = target
        return True

    return kept._replace(again=again)
