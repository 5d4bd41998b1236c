import pytest
from random_searches import differs, random_search

CALLS = 400


@pytest.mark.parametrize("part", range(4))
def test_random_searches_give_the_reference(part):
    seeds = range(part * CALLS // 4, (part + 1) * CALLS // 4)
    assert [(seed, reason) for seed in seeds if (reason := differs(random_search(seed)))] == []


def test_random_searches_have_what_is_difficult():
    calls = [random_search(seed) for seed in range(CALLS)]
    assert {call.metric for call in calls} == {"ip", "l2", "cosine"}
    assert any(len(call.vectors) == 0 for call in calls)
    assert any(call.k > len(call.vectors) > 0 for call in calls)
    assert any(call.mask is not None and 0 < call.mask.sum() < call.k for call in calls)
    assert any(call.rescore and call.ids is not None for call in calls)
    assert any(len(call.vectors) > 3 and not call.vectors.any(axis=1).all() for call in calls)
