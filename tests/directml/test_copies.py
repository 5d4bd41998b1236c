"""Compiled operators are copied and pickled."""

import copy
import pickle
from functools import partial

import pytest
from desc_builders import ROWS, check_top_k, top_k1_desc
from processes import run

from dmlcpu import FeatureLevel, compile_operator


def pickled(operator, protocol):
    return pickle.loads(pickle.dumps(operator, protocol))


COPIES = [copy.copy, copy.deepcopy, *(partial(pickled, protocol=each) for each in range(pickle.HIGHEST_PROTOCOL + 1))]


@pytest.mark.parametrize("again", COPIES)
def test_copies_and_pickles(again):
    op = compile_operator(top_k1_desc(), feature_level=FeatureLevel.LEVEL_3_1)
    check_top_k(op(input_tensor=ROWS))
    other = again(op)
    assert other is not op
    assert (other.desc, other.feature_level) == (op.desc, FeatureLevel.LEVEL_3_1)
    check_top_k(other(input_tensor=ROWS))


def test_another_process_runs_a_pickled_operator():
    op = compile_operator(top_k1_desc())
    code = f"""
    import pickle
    import numpy as np
    op = pickle.loads({pickle.dumps(op)!r})
    print(op(input_tensor=np.arange(12, dtype=np.float32).reshape(1, 1, 3, 4)).indices.ravel())
    """
    assert run(code).strip() == "[3 2 3 2 3 2]"
