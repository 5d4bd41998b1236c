"""How operators with scales, and one kernel, run on the same arrays again and again."""

from collections.abc import Callable
from typing import Any

import numpy as np

from dmlcpu.common.arguments import Array
from dmlcpu.common.bound import Steps
from dmlcpu.kernels.scales import check_scales
from dmlcpu.runtime.kept_calls import KeptCall, kept_call, kept_call_if
from dmlcpu.runtime.threads import Budget

_ONE = np.ones(1, np.float32)


def scaled_steps(
    plan_within: Callable[[Budget], Any],
    run: Callable[..., None],
    check: Callable[[], None] | None,
    scales: list[Array],
    *arrays: Array,
) -> Steps:
    """Return the steps.

    run: carries a plan out; scales: those that may have changed meanwhile; check: refuses what is wrong with them;
    arrays: what the kernel reads and writes, all of it flat.
    """

    def planned(chosen: Any) -> None:
        if check:
            check()
        run(chosen, *arrays)

    def alone(chosen: Any) -> KeptCall | None:
        if not chosen.is_single:
            return None
        call = (chosen.kernel.kernel, *arrays, chosen.work, chosen.workspace.make())
        if check is None:
            return kept_call(*call)
        return kept_call_if(check_scales, (*scales, *[_ONE] * (3 - len(scales)), np.zeros(1, np.int64)), *call)

    return Steps(plan_within, planned, alone)
