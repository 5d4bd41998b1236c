"""Keys have the wanted order of elements, for every type and both directions."""

import numpy as np
import pytest
from numba import njit
from samples import FLOATS, TOP_K_TYPES, specials

from dmlcpu import reference
from dmlcpu.kernels.top_k import keys
from dmlcpu.kernels.top_k.keys import KEY_MAP
from dmlcpu.runtime.records import record_at, record_of


@njit
def load_keys(x, step, n, constants, found):
    keys.load_keys(x, 0, step, n, keys.key_map_of(x, record_at(constants, 0, KEY_MAP)), found)


def keys_of(x, step, largest, nan_last=False):
    """Return the keys of every step-th element."""
    word, kind = (
        np.dtype(f"u{x.itemsize}"),
        {"b": keys.UNSIGNED, "u": keys.UNSIGNED, "i": keys.SIGNED}.get(x.dtype.kind),
    )
    infinity = 0
    if kind is None:
        kind, infinity = keys.FLOAT, int(np.array([np.inf]).astype(x.dtype).view(word)[0])
    found = np.zeros(x.size // step, word)
    constants = record_of(KEY_MAP, **keys.make_key_map(kind, x.itemsize, infinity, largest, nan_last)._asdict())
    load_keys(x.view(word), step, found.size, constants, found)
    return found


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("dtype", TOP_K_TYPES, ids=str)
def test_greater_keys_are_better_elements_and_equal_keys_ties(dtype, largest):
    x = specials(np.random.default_rng(3), (60,), dtype)
    found = keys_of(x, 1, largest)
    order = np.argsort(np.iinfo(found.dtype).max - found, kind="stable")
    assert order.tolist() == reference.top_k(x, 60, largest=largest).indices.tolist()
    assert keys_of(x, 2, largest).tolist() == found[::2].tolist()
    found = keys_of(x, 1, largest, nan_last=True)
    order = np.argsort(np.iinfo(found.dtype).max - found, kind="stable")
    assert order.tolist() == reference.top_k(x, 60, largest=largest, nan="last").indices.tolist()


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_nan_has_the_greatest_key_or_the_least_and_zeros_tie(dtype):
    x = np.array([np.nan, -np.nan, np.inf, -0.0, 0.0, -np.inf]).astype(dtype)
    found = keys_of(x, 1, True)
    assert found[0] == found[1] == np.iinfo(found.dtype).max > found[2] > found[3] == found[4]
    for largest in (True, False):
        found = keys_of(x, 1, largest, nan_last=True)
        assert found[0] == found[1] == 0 < found[2:].min()
