import ml_dtypes
import numpy as np
import pytest
from jitted import jitted

from dmlcpu.kernels import half

float16_to_float32, bfloat16_to_float32 = jitted(half.float16_to_float32), jitted(half.bfloat16_to_float32)
float32_to_float16, float32_to_bfloat16 = jitted(half.float32_to_float16), jitted(half.float32_to_bfloat16)

ALL = np.arange(2**16, dtype=np.uint32)


@pytest.mark.parametrize(
    ("widen", "type_"), [(float16_to_float32, np.float16), (bfloat16_to_float32, ml_dtypes.bfloat16)]
)
def test_every_number_widens_exactly(widen, type_):
    found = np.array([widen(bits) for bits in ALL])
    with np.errstate(invalid="ignore"):  # signaling NaNs
        expected = ALL.astype(np.uint16).view(type_).astype(np.float32)
    np.testing.assert_array_equal(found, expected)
    assert (np.signbit(found) == np.signbit(expected)).all()


def neighbourhoods(type_):
    """Every number of a 16-bit type, the middle to the next, and the float32 numbers on both sides of both."""
    numbers = ALL.astype(np.uint16).view(type_)
    with np.errstate(invalid="ignore"):
        numbers = np.sort(numbers[np.isfinite(numbers)].astype(np.float64))
    halfway = ((numbers[:-1] + numbers[1:]) / 2).astype(np.float32)
    edge = np.float32(65520) if type_ == np.float16 else np.float32(3.3961775e38)
    points = np.concatenate([numbers.astype(np.float32), halfway, [edge, -edge]])
    with np.errstate(over="ignore"):
        near = [np.nextafter(points, np.float32(side)) for side in (-np.inf, np.inf)]
    return np.concatenate([points, *near, [np.inf, -np.inf]]).astype(np.float32)


@pytest.mark.parametrize(
    ("narrow", "type_"), [(float32_to_float16, np.float16), (float32_to_bfloat16, ml_dtypes.bfloat16)]
)
def test_float32_rounds_to_the_nearest_number_and_ties_to_even(narrow, type_):
    points = neighbourhoods(type_)
    found = np.array([narrow(x) for x in points], np.uint16)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(found, points.astype(type_).view(np.uint16))


def test_every_nan_becomes_the_quiet_nan():
    for bits in (0x7F800001, 0xFFC12345):
        nan = np.array(bits, np.uint32).view(np.float32)[()]
        assert float32_to_float16(nan) == 0x7E00
        assert float32_to_bfloat16(nan) == 0x7FC0
