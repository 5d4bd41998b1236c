"""dmlcpu's time as a multiple of the machine's limit and of the best peer's, in turns. asv takes lower for better."""

import statistics

from . import limits, turns
from .common import MODULES
from .peers import IMPLEMENTATIONS, arrays

CASES = {
    str(case): case for module in MODULES.values() for case in list(next(iter(module.TABLES.values())).values())[:1]
}
TURNS = 3


class Ratios:
    params = (list(CASES),)
    param_names = ("case",)
    unit = "times"
    version = "1"

    def setup(self, case):
        self.case = CASES[case]

    def track_the_limit(self, case):
        (ours,) = self.contenders(["dmlcpu"]).values()
        amount, unit = self.case.work(arrays(ours.call()))
        limit = limits.of(unit)
        medians = self.medians({"dmlcpu": ours, "limit": turns.Contender(limit, "dmlcpu", "steady")})
        return medians["dmlcpu"] / (medians["limit"] * amount / limit.amount)

    def track_the_best_peer(self, case):
        medians = self.medians(self.contenders(IMPLEMENTATIONS))
        ours = medians.pop("dmlcpu")
        return ours / min(medians.values()) if medians else float("nan")

    def contenders(self, implementations):
        """Return those that can do the case."""
        return turns.enter(self.case, implementations, "steady")[0]

    def medians(self, contenders):
        return {name: statistics.median(each) for name, each in turns.take(contenders, TURNS).items()}
