"""The work record of a plan of scatter_nd."""

import dataclasses

import numpy as np
import pytest

from dmlcpu import reference
from dmlcpu.common.forms import form_of, strides_of
from dmlcpu.kernels import registry
from dmlcpu.kernels.scatter_nd.work import (
    BEFOREHAND,
    BLOCK,
    BY_BLOCK,
    CLIP,
    DROP,
    ELEMENTS,
    PLACES,
    RAISE,
    ROWS,
    SLICES,
    SPECULATIVE,
    VALID,
    WORK,
)
from dmlcpu.operators.scatter_nd import plan as scatter_plan
from dmlcpu.operators.scatter_nd.call import check
from dmlcpu.operators.scatter_nd.plan import plan
from dmlcpu.operators.scatter_nd.run import BY_KERNEL, BY_NUMPY, IN_PLACE
from dmlcpu.runtime.threads import Budget


def chosen(x, indices, updates, *, reduction="none", mode="raise", out=None, threads=1, kernel=None):
    forms = [*map(form_of, (x, indices, updates)), strides_of(out)]
    return plan(check(forms, (reduction, mode, out is x, 0)), Budget(threads, grain=1, kernel=kernel))


def floats(*shape):
    return np.zeros(shape, np.float32)


def tuples(*shape):
    return np.zeros(shape, np.int64)


@pytest.mark.parametrize(
    ("x", "indices", "updates", "reduction", "kind"),
    [
        (floats(9), tuples(5, 1), floats(5), "none", PLACES),
        (floats(9), tuples(5, 1), floats(5), "max", PLACES),
        (floats(9), tuples(5, 1).astype("u8"), floats(10)[::2], "none", PLACES),
        (floats(9), tuples(5, 1).astype("u4"), floats(5), "none", PLACES),
        (floats(9), tuples(5, 2)[:, :1], floats(5), "none", PLACES),
        (floats(9), tuples(5, 2).view("u4")[:, 1:3].view("i8"), floats(5), "none", PLACES),
        (floats(9), np.zeros(5, "i8, i4")["f0"][:, None], floats(5), "none", ELEMENTS),  # three words apart
        (floats(9)[::-1], tuples(5, 1), floats(5), "none", ELEMENTS),
        (floats(18)[::2], tuples(5, 1), floats(5), "none", ELEMENTS),
        (floats(3, 9), tuples(5, 2), floats(5), "none", ELEMENTS),
        (floats(9), tuples(2, 5, 1), floats(2, 6)[:, :5], "none", SLICES),  # not evenly spaced
        (floats(3, 9), tuples(5, 1), floats(5, 9), "none", ROWS),
        (floats(3, 9), tuples(5, 1), floats(5, 12)[:, :9], "add", ROWS),
        (floats(3, 4, 5), tuples(5, 1), floats(5, 4, 5), "add", ROWS),
        (floats(3, 9), tuples(5, 1), floats(5, 9), "max", SLICES),
        (floats(3, 9).astype("f2"), tuples(5, 1), floats(5, 9).astype("f2"), "none", ROWS),
        (floats(3, 9).astype("f2"), tuples(5, 1), floats(5, 9).astype("f2"), "add", SLICES),
        (floats(3, 9).astype("c8"), tuples(5, 1), floats(5, 9).astype("c8"), "add", ROWS),
        (floats(3, 9).astype("c8"), tuples(5, 1), floats(5, 9).astype("c8"), "mul", SLICES),
        (floats(3, 9), tuples(5, 1), floats(5, 18)[:, ::2], "none", SLICES),
        (floats(3, 4, 5), tuples(5, 1), floats(5, 4, 6)[..., :5], "none", SLICES),
    ],
)
def test_what_an_update_is(x, indices, updates, reduction, kind):
    assert chosen(x, indices, updates, reduction=reduction, out=x).work.view(WORK)["slices"]["kind"] == kind


@pytest.mark.parametrize(
    ("count", "mode", "copied", "kernel", "validation", "writing_mode", "has_pass"),
    [
        (1, "raise", BY_KERNEL, None, BY_BLOCK, RAISE, False),
        (BLOCK, "raise", IN_PLACE, None, BY_BLOCK, RAISE, False),
        (BLOCK, "raise", BY_NUMPY, None, BEFOREHAND, DROP, True),
        (BLOCK, "drop", BY_KERNEL, None, BEFOREHAND, DROP, False),
        (BLOCK, "clip", BY_KERNEL, None, BEFOREHAND, CLIP, False),
        (BLOCK, "raise", BY_KERNEL, "apply_buckets", BEFOREHAND, DROP, False),  # counting validates
        (BLOCK, "clip", BY_KERNEL, "apply_buckets", BEFOREHAND, CLIP, False),
        (999, "raise", BY_KERNEL, None, BEFOREHAND, DROP, True),
        (1_000, "raise", BY_KERNEL, None, SPECULATIVE, RAISE, False),
        (1_000, "raise", IN_PLACE, None, SPECULATIVE, RAISE, False),
        (1_000, "raise", BY_NUMPY, None, BEFOREHAND, DROP, True),
        (0, "raise", BY_KERNEL, None, BEFOREHAND, DROP, False),
    ],
)
def test_who_validates(count, mode, copied, kernel, validation, writing_mode, has_pass):
    x = floats(2_000)[::2] if copied == BY_NUMPY else floats(1_000)
    out = x if copied == IN_PLACE else None
    found = chosen(x, tuples(count, 1), floats(count), mode=mode, out=out, kernel=kernel)
    assert found.copied == copied
    work = found.work.view(WORK)[0]
    assert (found.validation, work["validation"]) == (validation, validation)
    assert work["writing_mode"] == writing_mode
    assert (found.validate is not None) == has_pass


@pytest.mark.parametrize(
    ("x", "in_place", "threads", "copies_first"),
    [
        (floats(40, 30), False, 3, False),
        (np.asfortranarray(floats(40, 30)), False, 3, True),
        (np.asfortranarray(floats(40, 30)), False, 1, False),
        (np.asfortranarray(floats(40, 30)), True, 3, False),
    ],
)
def test_shares_copy_what_they_own_only_if_slices_lie_there(x, in_place, threads, copies_first):
    found = chosen(x, tuples(50, 1), floats(50, 30), out=x if in_place else np.empty_like(x), threads=threads)
    assert found.owners == threads
    assert (found.copy is not None) == copies_first


@pytest.mark.parametrize(
    ("lay_x", "lay_out", "copied"),
    [
        (lambda x: x, lambda x: x, BY_KERNEL),
        (lambda x: x.transpose(2, 0, 1), lambda x: x.transpose(2, 0, 1), BY_KERNEL),
        (lambda x: x[::-1, :, ::-1], lambda x: x[::-1, :, ::-1], BY_KERNEL),
        (lambda x: x, lambda x: x[::-1], BY_NUMPY),
        (lambda x: x.transpose(2, 0, 1), lambda x: x.transpose(2, 1, 0), BY_NUMPY),
        (lambda x: np.concatenate([x, x])[::2], lambda x: np.concatenate([x, x])[::2], BY_NUMPY),
        (lambda x: x[:1], lambda x: x[2:], BY_KERNEL),
    ],
)
@pytest.mark.parametrize("threads", [1, 3])
def test_kernels_copy_what_is_laid_out_alike_without_gaps(lay_x, lay_out, copied, threads):
    rng = np.random.default_rng(2)
    x, out = lay_x(rng.random((3, 3, 3))), lay_out(np.zeros((3, 3, 3)))
    for count in (2, 300):  # validated by block, and speculatively or beforehand
        indices, updates = rng.integers(0, x.shape[0], (count, 1)), rng.random((count, *x.shape[1:]))
        made = chosen(x, indices, updates, out=out, threads=threads)
        assert made.copied == copied
        made.run(x, indices, updates, out)
        np.testing.assert_array_equal(out, reference.scatter_nd(x, indices, updates))


def test_indices_are_validated_before_single_elements_are_copied():
    found = chosen(floats(1_000), tuples(50, 1), floats(50), threads=3)
    assert found.copy is not None
    assert found.validate is not None
    assert found.validation == BEFOREHAND


@pytest.mark.parametrize(
    ("dtype", "reduction", "count", "mode", "accumulators"),
    [
        ("i8", "add", 900, "raise", 3),
        ("u1", "add", 900, "raise", 3),
        ("?", "add", 900, "raise", 3),
        ("f4", "max", 900, "raise", 3),
        ("f4", "max", 500, "raise", 2),  # fewer than two updates for each element of three accumulators
        ("f4", "max", 900, "drop", 0),
        ("f4", "add", 900, "raise", 1),  # of these the order matters
        ("f2", "max", 900, "raise", 0),
        ("i8", "mul", 900, "raise", 1),
        ("i8", "none", 900, "raise", 1),
        ("i8", "add", 100, "raise", 0),
    ],
)
def test_shares_have_accumulators_where_order_does_not_matter(dtype, reduction, count, mode, accumulators):
    x, updates = np.zeros(100, dtype), np.zeros(count, dtype)
    found = chosen(x, tuples(count, 1), updates, reduction=reduction, mode=mode, threads=3)
    assert found.targets.count == accumulators
    assert (found.merge is not None) == (accumulators > 1)
    assert found.owners == (3 if dtype == "f2" else max(accumulators, 1))


@pytest.mark.parametrize(
    ("shape", "kernel", "reason"),
    [
        ((40, 30), None, "apply (slices for at most 3 threads)"),
        ((40,), None, "apply (fewer than 65536 updates, or into less than "),
        ((40,), "apply", "apply (requested)"),
        ((40,), "apply_buckets", "apply_buckets (requested)"),
    ],
)
def test_a_plan_says_why_it_took_the_kernel(caplog, shape, kernel, reason):
    plan.cache_clear()
    with caplog.at_level("DEBUG", "dmlcpu"):
        chosen(floats(*shape), tuples(50, 1), floats(50, *shape[1:]), kernel=kernel)
    assert f" into {shape}: {reason}" in caplog.messages[-1]


@pytest.mark.skipif(len(registry.available("scatter_nd", "apply")) < 2, reason="needs AVX-512")
@pytest.mark.parametrize(
    ("elements", "count", "reduction", "dtype", "threads", "kernel"),
    [
        (600_000, 300_000, "add", "f4", 2, "apply_selected"),
        (600_000, 300_000, "none", "f2", 2, "apply_selected"),
        (600_000, 300_000, "add", "f4", 1, "apply"),
        (600_000, 200_000, "add", "f4", 2, "apply"),
        (500_000, 300_000, "add", "f4", 2, "apply"),  # fits four second caches
        (600_000, 300_000, "add", "f2", 2, "apply"),
    ],
)
def test_shares_select_their_elements_beyond_four_second_caches(
    monkeypatch, elements, count, reduction, dtype, threads, kernel
):
    monkeypatch.setattr(scatter_plan, "second_level_cache", lambda: 500_000 if dtype == "f4" else 250_000)
    plan.cache_clear()
    x, updates = np.zeros(elements, dtype), np.zeros(count, dtype)
    found = chosen(x, tuples(count, 1), updates, reduction=reduction, threads=threads)
    assert found.kernel == kernel
    assert found.owners == (threads if kernel == "apply_selected" or dtype == "f2" else 1)
    plan.cache_clear()


def test_who_asks_for_buckets_gets_them_however_full_they_are():
    assert chosen(floats(1_000), tuples(50, 1), floats(50), kernel="apply_buckets", threads=2).partition.most == 50


@pytest.mark.parametrize("count", [256, 3_000])  # validated by block, and speculatively
def test_a_bad_index_that_only_one_share_finds_is_reported(count):
    """Another thread changed it after the other shares validated it."""
    x, indices, out = np.arange(2_000.0).reshape(-1, 2), np.zeros((count, 1), int), np.full((1_000, 2), 5.0)
    updates = np.ones((count, 2))
    made = chosen(x, indices, updates, threads=3)
    assert made.owners == 3

    def apply(_first, _parts, *arrays):
        arrays[-1][:3] = [VALID, 7, VALID]

    assert dataclasses.replace(made, apply=apply).run(x, indices, updates, out) == 7
    assert (out == 5).all()


@pytest.mark.parametrize(
    ("count", "reduction", "in_place", "threads", "is_kept"),
    [
        (5, "none", False, 1, True),  # validated by block
        (5, "none", True, 1, True),
        (5, "none", True, 3, False),  # several parts
        (300, "none", True, 1, True),  # speculative
        (300, "add", False, 1, True),
        (300, "add", True, 1, True),
    ],
)
@pytest.mark.parametrize("shape", [(20,), (20, 2)])
def test_calls_of_one_kernel_are_kept(count, reduction, in_place, threads, is_kept, shape):
    rng = np.random.default_rng(count)
    x, indices, updates = rng.random(shape), rng.integers(0, 20, (count, 1)), rng.random((count, *shape[1:]))
    out = x if in_place else np.zeros(shape)
    made = chosen(x, indices, updates, reduction=reduction, out=out, threads=threads)
    kept = made.keep(x, indices, updates, out)
    assert (kept is not None) == is_kept
    for _ in range(2 if kept else 0):
        expected = reference.scatter_nd(x, indices, updates, reduction=reduction)
        assert kept()
        np.testing.assert_array_equal(out, expected)
    if kept:
        indices[-1], before = 20, out.copy()
        assert not kept()
        np.testing.assert_array_equal(out, before)


def test_calls_with_more_than_a_kernel_are_not_kept():
    indices, updates, out = tuples(5, 1), floats(5), floats(9)
    for x, kernel in (
        (floats(18)[::2], None),
        (floats(9), "apply_buckets"),
    ):  # NumPy copies it; updates are partitioned
        assert chosen(x, indices, updates, out=out, kernel=kernel).keep(x, indices, updates, out) is None
