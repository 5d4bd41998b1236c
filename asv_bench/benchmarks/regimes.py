"""Calls that use several threads, in each regime but the steady one."""

import contextlib

from .common import THREADED
from .conditions import ready, surroundings
from .peers import ONE_THREAD, TEAMS, Comparison, build, cells, crowd_around, parts, settings_of


class Paused(Comparison):
    cases = THREADED
    params = cells(THREADED, ["dmlcpu", ONE_THREAD, "onnxruntime"])
    regime = "paused"

    def setup(self, cell):
        self.leave = lambda: None  # asv also tears down after a failed setup
        implementation, case = parts(cell)
        case = self.cases[case]
        call = build(case, implementation)
        crowd = crowd_around(case, implementation) if self.regime == "crowded" else ()
        with contextlib.ExitStack() as stack:
            stack.enter_context(surroundings(self.regime))
            stack.enter_context(settings_of(implementation))
            self.call = ready(call, self.regime, crowd)
            self.leave = stack.pop_all().close

    def teardown(self, cell):
        self.leave()

    def time_call(self, cell):
        return self.call()


class Crowded(Paused):
    regime = "crowded"


class Oversubscribed(Paused):
    params = cells(THREADED, ["dmlcpu", *TEAMS])
    regime = "oversubscribed"


class Busy(Paused):
    regime = "busy"
