"""torch.sort and torch.unique, and what PyTorch computes by them, with and without these kernels."""

import numpy as np
import pytest
from torch_calls import ORDERED, outcomes, passed_on, takes

torch = pytest.importorskip("torch")


def some(dtype, shape=(40, 60), seed=0):
    """Return numbers with ties, NaN and zeros of both signs."""
    rng = np.random.default_rng(seed)
    x = torch.from_numpy(rng.integers(-5, 5, shape).astype(np.float32))
    if getattr(torch, dtype).is_floating_point:
        x[torch.from_numpy(rng.random(shape) < 0.1)] = float("nan")
        x *= torch.from_numpy(rng.choice([1.0, -1.0], shape).astype(np.float32))
    return (x.abs() if dtype == "uint8" else x).to(getattr(torch, dtype))


@pytest.mark.parametrize("dtype", ORDERED)
@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize(("shape", "dim"), [((2400,), 0), ((40, 60), 1), ((60, 40), 0), ((3, 300, 4), -2)])
def test_sort_is_pytorchs_stable_one(forced, dtype, descending, shape, dim):
    x = some(dtype, shape)
    with takes(forced, "sort", calls=2):
        stable = torch.sort(x, stable=True, dim=dim, descending=descending)
        other = torch.sort(x, dim=dim, descending=descending)
    forced.disable()
    expected = torch.sort(x, stable=True, dim=dim, descending=descending)
    for found in (stable, other):
        assert torch.equal(found.indices, expected.indices)
        assert torch.equal(found.values.view(torch.uint8), expected.values.view(torch.uint8))


@pytest.mark.parametrize("make", [torch.clone, torch.t, lambda x: x[::2, ::3], lambda x: x[:1].expand(5, -1)])
def test_strides_are_pytorchs(forced, make):
    x = make(some("float32"))
    for dim in (0, 1):
        mine, theirs = outcomes(forced, lambda dim=dim: torch.sort(x, dim=dim, stable=True))
        for one, other in zip(mine, theirs, strict=True):
            assert torch.equal(one.nan_to_num(99), other.nan_to_num(99))
            assert one.stride() == other.stride()


def test_what_pytorch_computes_by_sort(forced):
    x = torch.randn(50, 70)
    for call in (
        lambda: torch.argsort(x, stable=True),
        lambda: torch.msort(x),
        lambda: torch.quantile(x, 0.3, dim=1),
        lambda: torch.sort(x.requires_grad_()).values[:, 3].sum().backward() or x.grad.clone(),
    ):
        x.grad = None
        with takes(forced, "sort"):
            mine = call()
        forced.disable()
        x.grad = None
        assert torch.equal(mine, call())
        forced.enable()


@pytest.mark.parametrize(
    "call", [lambda x: torch.sort(x, 2), lambda x: torch.sort(x[0, 0]), lambda x: torch.sort(x[:0])]
)
def test_bad_and_odd_arguments(forced, call):
    x = some("float32")
    mine, theirs = outcomes(forced, lambda: call(x))
    if isinstance(mine[0], torch.Tensor):
        assert all(map(torch.equal, mine, theirs))
    else:
        assert mine == theirs


def test_out_is_pytorchs(forced):
    x, values, indices = torch.randn(99), torch.empty(0), torch.empty(0, dtype=torch.int64)
    with takes(forced, "sort", calls=0):
        torch.sort(x, out=(values, indices))
    assert values.shape == (99,)


@pytest.mark.parametrize("dtype", ORDERED)
@pytest.mark.parametrize("inverse", [False, True])
@pytest.mark.parametrize("counts", [False, True])
def test_unique(forced, dtype, inverse, counts):
    is_taken = not (getattr(torch, dtype).is_floating_point or inverse)
    whole = some(dtype).nan_to_num(3)  # PyTorch does not promise which of several NaNs comes first
    for x in (whole, whole.T, whole[:1, :1]):
        with takes(forced, "unique", calls=int(is_taken)):
            mine = torch.unique(x, return_inverse=inverse, return_counts=counts)
        forced.disable()
        theirs = torch.unique(x, return_inverse=inverse, return_counts=counts)
        forced.enable()
        mine, theirs = [each if isinstance(each, tuple) else (each,) for each in (mine, theirs)]
        for one, other in zip(mine, theirs, strict=True):
            assert one.dtype == other.dtype
            assert torch.equal(one, other)
    if not is_taken:
        assert passed_on(forced, "unique")["arguments" if inverse else "type"] > 0


def test_memory_of_unique_holds_nothing_else(forced):
    with takes(forced, "unique"):
        found = torch.unique(torch.arange(5000) % 3, return_counts=True)
    assert [each.untyped_storage().nbytes() for each in found] == [24, 24]
