"""Runs of the quantizers: each element of x meets its own scale, zero point and place in y."""

import math

import numpy as np
import pytest
from hypothesis import given, strategies as st

from dmlcpu.common.forms import Form, form_of
from dmlcpu.kernels.quantize_linear.work import LONG, NIBBLE, TILE
from dmlcpu.quantizers.layout import Layout, lay_out, layout_of, meets
from dmlcpu.quantizers.plan import cut
from dmlcpu.runtime.memory import packed_strides
from dmlcpu.runtime.threads import Budget

SIZES = st.sampled_from([1, 2, 3, 4, 6, 8, 12, 16, 32])


def packed(*shape, type="float32"):
    return Layout(shape, packed_strides(shape), type)


def places(fields, name):
    """Return the place of each element of a tensor, in the order of the runs."""
    tensor, sizes = fields[name], fields["walk"]["sizes"]
    block = fields["block"] if name in ("scale", "zero") else 1
    indices = np.indices(sizes).reshape(len(sizes), math.prod(sizes))
    starts = tensor["start"] + np.array(tensor["strides"], np.int64) @ indices
    return np.add.outer(starts, np.arange(fields["n"]) // block * tensor["step"]).reshape(-1)


@given(st.data())
def test_every_element_meets_its_own_scale_and_zero_point(data):
    shape = data.draw(st.lists(SIZES, min_size=0, max_size=4).filter(lambda shape: math.prod(shape) <= 1 << 14))
    divisors = [[size for size in range(1, n + 1) if n % size == 0] for n in shape]
    scale = [data.draw(st.sampled_from(each)) for each in divisors]
    zero = [
        data.draw(st.sampled_from([size for size in each if meets(size, mine)]))
        for each, mine in zip(divisors, scale, strict=True)
    ]
    order = data.draw(st.permutations(range(len(shape))))
    x = np.arange(int(np.prod(shape))).reshape([shape[d] for d in order]).transpose(np.argsort(order))
    fields = lay_out(layout_of(Form(*form_of(x))), packed(*scale), packed(*zero), packed(*shape))
    y_places = places(fields, "y")
    assert np.array_equal(np.sort(y_places), np.arange(x.size))
    assert np.array_equal(places(fields, "x"), x.reshape(-1)[y_places])
    for name, sizes in (("scale", scale), ("zero", zero)):
        numbers = np.arange(int(np.prod(sizes))).reshape(sizes)
        for d, (n, size) in enumerate(zip(shape, sizes, strict=True)):
            numbers = np.repeat(numbers, n // size, axis=d)
        assert np.array_equal(places(fields, name), numbers.reshape(-1)[y_places])


def run_of(*layouts):
    fields = lay_out(*layouts)
    return fields["n"], fields["block"], fields["walk"]["sizes"]


def test_a_scale_for_all_makes_one_run():
    assert run_of(packed(4, 5, 60), packed(1, 1, 1), packed(1, 1, 1), packed(4, 5, 60)) == (1200, 1200, [1])


def test_a_scale_for_each_row_makes_a_run_of_short_rows_and_runs_of_long_ones():
    one = packed(1, 1)
    assert run_of(packed(4, 32), packed(4, 1), one, packed(4, 32)) == (128, 32, [1])
    assert run_of(packed(4, 2 * TILE), packed(4, 1), one, packed(4, 2 * TILE)) == (2 * TILE, 2 * TILE, [4])


def test_blocks_along_rows_are_in_one_run():
    assert run_of(packed(4, 320), packed(4, 10), packed(1, 1), packed(4, 320)) == (1280, 32, [1])


def test_a_scale_for_each_column_is_one_for_each_element_of_a_run():
    assert run_of(packed(4, 320), packed(1, 320), packed(1, 1), packed(4, 320)) == (320, 1, [4])


def test_runs_follow_y():
    across = Layout((3, 700), (1, 3), "float32")
    assert run_of(across, packed(1, 1), packed(1, 1), across) == (2100, 2100, [1])
    assert run_of(across, packed(1, 1), packed(1, 1), packed(3, 700)) == (700, 700, [3])


def test_a_single_element():
    assert run_of(packed(), packed(), packed(), packed()) == (1, LONG, [1])


@pytest.mark.parametrize(("columns", "start", "most"), [(4096, 0, 5), (4097, 0, 1), (64, 0, 1), (1 << 20, 0, 5)])
def test_threads_write_to_bytes_of_their_own(columns, start, most):
    y = Layout((2, columns), packed_strides((2, columns)), "int4", True)
    fields = lay_out(packed(2, columns), packed(2, 1), packed(1, 1, type="int4"), y)
    assert fields["y"]["kind"] == NIBBLE
    layouts = packed(2, columns), packed(2, 1), packed(1, 1, type="int4"), y
    _, _, parts = cut("quantize_linear", layouts, Budget(5, 1))
    assert parts == most
