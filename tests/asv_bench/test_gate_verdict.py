"""The gate's statistics, on made-up seconds: each verdict, and each exit code."""

import random

import pytest
from asv_files import load

cells, turns, verdict = (load(f"gate.{name}") for name in ("cells", "turns", "verdict"))
CELL, OTHER = cells.Cell("top_k", "one"), cells.Cell("top_k", "other")
ROUNDS = 21
THRESHOLD = 1.05


def measured(cell=CELL, head=1.0, again=1.0, noise=0.01, seed=0):
    """Return a measurement whose processes take `head` and `again` times as long as the base."""
    draw = random.Random(seed)
    machine = [draw.uniform(1, 2) for _ in range(ROUNDS)]  # it may be slow for a whole round

    def times(factor):
        return [1e-3 * factor * slow * draw.uniform(1 - noise, 1 + noise) for slow in machine]

    return turns.Measured(cell, {"base": times(1), "head": times(head), "base again": times(again)}, {})


def missing(cell=CELL, **names):
    return turns.Measured(cell, {"base": [], "head": [], "base again": []}, names)


def conclude(first, second=()):
    outcome = verdict.conclude(list(first), list(second), THRESHOLD)
    return outcome.exit_code, [row.verdict for row in outcome.rows], outcome.withheld


def test_estimate_is_the_ratio_of_quiet_rounds():
    """The machine takes twice as long in half of the rounds, and in others for each process."""
    base, head = (
        [seconds * (1 + (number + quiet) % 2) for number in range(31)] for seconds, quiet in ((1.0, 0), (1.1, 1))
    )
    found = verdict.estimate(head, base)
    assert found.middle == pytest.approx(1.1)
    assert 1 < found.low <= found.middle <= found.high


def test_the_interval_has_its_confidence():
    draw = random.Random(1)
    held = 0
    for _ in range(300):
        one, other = ([draw.lognormvariate(0, 0.05) for _ in range(21)] for _ in range(2))
        found = verdict.estimate(one, other)
        held += found.low <= 1 <= found.high
    assert held >= 0.97 * 300


def test_too_few_rounds_have_no_interval():
    assert verdict.estimate([1] * verdict.FEWEST_ROUNDS, [1] * verdict.FEWEST_ROUNDS).low == 1
    with pytest.raises(ValueError, match="7 rounds are too few; allowed: 9 or more"):
        verdict.estimate([1] * 7, [1] * 7)


def test_equal_sides_are_quiet():
    assert conclude([measured(), measured(OTHER, seed=1)]) == (0, ["quiet", "quiet"], [])


def test_a_slowdown_in_both_runs_is_reported():
    first = [measured(head=1.1), measured(OTHER)]
    assert verdict.flagged(first, THRESHOLD) == [CELL]
    assert conclude(first, [measured(head=1.1, seed=2)]) == (1, ["slower", "quiet"], [])


def test_a_slowdown_in_one_run_is_not():
    assert conclude([measured(head=1.1)], [measured(seed=2)]) == (0, ["slower, not confirmed"], [])


def test_gains_are_listed_and_pass():
    first = [measured(head=0.8)]
    assert verdict.flagged(first, THRESHOLD) == [CELL]
    assert conclude(first, [measured(head=0.8, seed=2)]) == (0, ["faster"], [])
    assert conclude(first, [measured(head=1.2, seed=2)]) == (0, ["faster, not confirmed"], [])


def test_less_than_the_threshold_is_quiet():
    assert conclude([measured(head=1.03)]) == (0, ["quiet"], [])


def test_noise_is_no_slowdown():
    loud = measured(head=1.06, noise=0.6)
    ratio = verdict.judge(loud).ratio
    assert ratio.low < 1
    assert not verdict.flagged([loud], THRESHOLD)


def test_head_has_to_be_slower_than_both_processes_of_the_base():
    first = [measured(head=1.1, again=1.1), measured(OTHER, seed=1), measured(cells.Cell("top_k", "third"), seed=2)]
    assert not verdict.flagged(first, THRESHOLD)
    assert conclude(first) == (0, ["unsteady", "quiet", "quiet"], [])


@pytest.mark.parametrize("factors", [{"head": 1.05}, {"head": 0.95}, {"again": 1.05}])
@pytest.mark.parametrize("control", cells.CONTROLS)
def test_the_verdict_is_withheld_if_a_control_is_biased(control, factors):
    code, _, withheld = conclude([measured(control, **factors), measured(head=1.2)], [measured(head=1.2)])
    assert code == 2
    assert len(withheld) == 1
    assert withheld[0].startswith(control.case)


def test_the_verdict_is_withheld_if_the_processes_of_the_base_differ():
    names = [cells.Cell("top_k", str(number)) for number in range(20)]
    drift = [measured(name, again=1.03, seed=seed) for seed, name in enumerate(names)]
    assert conclude(drift)[0] == 2
    unsteady = [measured(name, again=1.1 if seed < 6 else 1, seed=seed) for seed, name in enumerate(names)]
    code, verdicts, withheld = conclude(unsteady)
    assert (code, verdicts.count("unsteady")) == (2, 6)
    assert withheld == ["the two processes of base differ in 6 of 20 cells"]
    assert conclude([*unsteady[1:], measured(cells.Cell("top_k", "20"), seed=20)])[0] == 0


def test_a_second_run_of_one_cell_tells_of_the_cell():
    """Its processes of the base may differ a little, as those of any cell; head is slower than both."""
    assert conclude([measured(head=1.12)], [measured(head=1.12, again=1.03, seed=2)])[:2] == (1, ["slower"])


def test_the_verdict_is_withheld_if_the_second_run_is_biased():
    control = cells.CONTROLS[0]
    second = [measured(control, head=1.1), measured(head=1.1, seed=2)]
    code, _, withheld = conclude([measured(control), measured(head=1.1)], second)
    assert code == 2
    assert withheld[0].startswith("in the second run np.sort took")


def test_what_only_head_can_do_is_new():
    gone = missing(OTHER, base="AttributeError: no such function", **{"base again": "AttributeError"})
    assert conclude([measured(), gone]) == (0, ["quiet", "new (AttributeError: no such function)"], [])


def test_what_only_base_can_do_withholds_the_verdict():
    code, verdicts, withheld = conclude([measured(), missing(OTHER, head="TypeError: k")])
    assert (code, verdicts) == (2, ["quiet", "fails in head (TypeError: k)"])
    assert withheld == ["top_k: other fails in head (TypeError: k)"]


def test_nothing_measured_is_no_verdict():
    neither = missing(base="ImportError: x", head="ImportError: x", **{"base again": "ImportError: x"})
    code, verdicts, withheld = conclude([measured(cells.CONTROLS[0]), neither])
    assert (code, verdicts) == (2, ["quiet", "not here (ImportError: x)"])
    assert withheld == ["no cell could be timed on both sides"]
