"""Calls that use several threads, in each regime."""

import contextlib

from .common import THREADED
from .conditions import ready, surroundings
from .peers import ONE_THREAD, Comparison, build, crowd_around, settings_of


class Steady(Comparison):
    params = (["dmlcpu", ONE_THREAD, "onnxruntime", "torch"], list(THREADED))
    cases = THREADED
    regime = "steady"

    def setup(self, implementation, case):
        self.leave = lambda: None  # asv also tears down after a failed setup
        case = self.cases[case]
        call = build(case, implementation)
        crowd = crowd_around(case, implementation) if self.regime == "crowded" else ()
        with contextlib.ExitStack() as stack:
            stack.enter_context(surroundings(self.regime))
            stack.enter_context(settings_of(implementation))
            self.call = ready(call, self.regime, crowd)
            self.leave = stack.pop_all().close

    def teardown(self, implementation, case):
        self.leave()

    def time_call(self, implementation, case):
        return self.call()


class Paused(Steady):
    regime = "paused"


class Crowded(Steady):
    regime = "crowded"


class Busy(Steady):
    regime = "busy"
