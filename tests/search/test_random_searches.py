import collections

import numpy as np
import pytest
from random_searches import FLOATS, KINDS, FloatSearch, differs, random_search

CALLS = 800


@pytest.mark.parametrize("part", range(4))
def test_random_searches_give_the_reference(part):
    passes, seeds = collections.Counter(), range(part * CALLS // 4, (part + 1) * CALLS // 4)
    assert [(seed, reason) for seed in seeds if (reason := differs(random_search(seed), passes))] == []
    assert set(passes) == {0, 1, 2, 3}  # those of floats go all ways
    assert min(passes.values()) > 30


def test_random_searches_have_what_is_difficult():
    calls = [call for call in map(random_search, range(CALLS)) if not isinstance(call, FloatSearch)]
    assert {call.metric for call in calls} == {"ip", "l2", "cosine"}
    assert any(len(call.vectors) == 0 for call in calls)
    assert any(call.k > len(call.vectors) > 0 for call in calls)
    assert any(call.mask is not None and 0 < call.mask.sum() < call.k for call in calls)
    assert any(call.mask is not None and call.mask.ndim == 2 for call in calls)
    assert any(call.rescore and call.ids is not None for call in calls)
    assert any(len(call.vectors) > 3 and not call.vectors.any(axis=1).all() for call in calls)


def test_random_searches_of_floats_have_what_is_difficult():
    calls = [call for call in map(random_search, range(CALLS)) if isinstance(call, FloatSearch)]
    assert {(call.queries.dtype, call.vectors.dtype) for call in calls} == {(a, b) for a in FLOATS for b in FLOATS}
    assert {(call.kind, call.metric) for call in calls} >= {(kind, "cosine") for kind in KINDS}
    assert any(call.k > len(call.vectors) > 0 for call in calls)
    assert any(call.allowed is not None and (call.allowed.sum(axis=1) < call.k).any() for call in calls)
    forms = {type(call.options.get("exclude")) for call in calls}
    assert forms == {type(None), np.ndarray, list, tuple}
