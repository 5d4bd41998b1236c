"""Launches without other threads: what a kernel is given, by a step that is compiled for the types of its arguments."""

import numpy as np
import pytest

from dmlcpu.runtime.kernel import kernel
from dmlcpu.runtime.launches import compile_lead, compiled_launch, do_parts

RECORD = np.dtype([("number", np.int64), ("words", np.uint16, 3)])


def take_all(_boxes, _parts, _helpers, launch):
    do_parts(launch)
    return 0


@pytest.fixture(scope="module")
def launch():
    compiled, lead = compile_lead(take_all, {"_nrt": False})

    def run(kernel, parts, *args):
        compiled_launch()(kernel.address(args), parts, 0, args, np.zeros(0, np.int64), lead)

    run.held = compiled
    return run


@kernel
def fill(part, parts, flag, signed, half, z, small, record, out):
    """Write numbers whose decimal digits show each argument."""
    out[part] += part + 10 * parts + 100 * flag + 1000 * signed + half + z.imag
    out[part] += 100_000 * small[part] + 1_000_000 * record[0].words[2]


def test_a_kernel_is_given_arguments_of_all_kinds_unchanged(launch):
    """Those of one byte come first: what follows them would move if they were laid out in another way."""
    record = np.zeros(1, RECORD)
    record["words"][0, 2] = 7
    small, out = np.arange(3, 7, dtype=np.int8), np.zeros(4)
    launch(fill, 4, True, -5, 0.5, 0.25j, small, record, out)
    assert out.tolist() == [7_000_000 + 100_000 * (3 + part) - 5000 + 140.75 + part for part in range(4)]


@kernel
def add(part, parts, x, y):
    y[part] += x[part]


@pytest.mark.parametrize("is_read_only", [False, True])
def test_a_kernel_is_given_arrays_of_one_layout_or_read_only_ones(launch, is_read_only):
    """Numba has another kind of tuple for arguments of one type."""
    x, y = np.arange(3.0), np.zeros(3)
    x.flags.writeable = not is_read_only
    launch(add, 3, x, y)
    assert y.tolist() == [0, 1, 2]
