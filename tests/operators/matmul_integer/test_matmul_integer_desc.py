"""Microsoft's table of feature levels; tests/products has the rest."""

import pytest
from desc_builders import integer_desc, tensor
from feature_levels import ALL_TYPES, FOUR, levels_of, supported


def of_counts(matrices=4, a_values=4, b_values=4, a="INT8", b="INT8", y="INT32"):
    ones = (1,) * (matrices - 2)
    return integer_desc(
        a_tensor=tensor(a, *ones, 2, 3),
        a_zero_point_tensor=tensor(a, *(1,) * a_values),
        b_tensor=tensor(b, *ones, 3, 4),
        b_zero_point_tensor=tensor(b, *(1,) * b_values),
        output_tensor=tensor(y, *ones, 2, 4),
    )


@pytest.mark.parametrize(
    ("first", "after", "matrices", "a_values", "b_values"),
    [
        ("2_1", "4_0", FOUR, FOUR, FOUR),
        ("4_0", "5_2", range(2, 5), range(1, 5), range(2, 5)),
        ("5_2", None, range(2, 5), range(1, 5), range(1, 5)),
    ],
)
def test_microsofts_table(first, after, matrices, a_values, b_values):
    for level in levels_of(first, after):
        assert [n for n in range(2, 9) if supported(of_counts(matrices=n), level)] == list(matrices)
        assert [n for n in range(1, 9) if supported(of_counts(a_values=n), level)] == list(a_values)
        assert [n for n in range(1, 9) if supported(of_counts(b_values=n), level)] == list(b_values)
        for name in ("a", "b"):
            assert [t for t in ALL_TYPES if supported(of_counts(**{name: t}), level)] == ["UINT8", "INT8"]
        assert [t for t in ALL_TYPES if supported(of_counts(y=t), level)] == ["INT32"]
