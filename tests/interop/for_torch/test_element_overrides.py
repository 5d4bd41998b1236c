"""Scatters, gather, order statistics, argmax and argmin of PyTorch, with and without these kernels."""

import functools
import math

import numpy as np
import pytest
from torch_calls import HALVES, ORDERED, outcomes, passed_on, takes

torch = pytest.importorskip("torch")

REDUCTIONS = ("sum", "prod", "amax", "amin")
# Each in place, or as a copy, on x, dim, index and source.
SCATTERS = {
    "scatter_": lambda *args: args[0].scatter_(*args[1:]),
    "scatter": torch.scatter,
    "scatter_add_": lambda *args: args[0].scatter_add_(*args[1:]),
    "scatter_add": torch.scatter_add,
    **{f"scatter_reduce_ {each}": lambda x, *args, each=each: x.scatter_reduce_(*args, each) for each in REDUCTIONS},
    **{f"scatter_reduce {each}": lambda *args, each=each: torch.scatter_reduce(*args, each) for each in REDUCTIONS},
}
SHAPES = [(300,), (30, 40), (5, 60, 7), (1, 9, 1)]


@functools.cache
def some(dtype, shape, seed=0):
    """Return numbers with ties, zeros of both signs and, of floats, fractions and NaN."""
    rng, dtype = np.random.default_rng(seed), getattr(torch, dtype)
    x = torch.from_numpy(rng.integers(-3, 4, shape).astype(np.float32))
    if dtype.is_floating_point:
        x *= torch.from_numpy(rng.choice([1.0, -1.0, 0.1, 0.7], shape).astype(np.float32))
        x[torch.from_numpy(rng.random(shape) < 0.03)] = math.nan
    return (x.abs() if dtype is torch.uint8 else x).to(dtype)


def dims_of(shape):
    """Return each dimension once: by turns as it is and counted from the end."""
    return [dim - len(shape) if dim % 2 else dim for dim in range(len(shape))]


@functools.cache
def places(shape, dim, kind, seed=1, stop=None):
    """Return random indices along a dimension: for each element, or for each slice; of fewer than all elements."""
    rng, sizes = np.random.default_rng(seed), list(shape)
    sizes[dim] = 11
    if kind == "each":
        return torch.from_numpy(rng.integers(0, stop or shape[dim], sizes))
    if kind == "few":
        return places(shape, dim, "each", stop=shape[dim])[tuple(slice(max(1, n - 2)) for n in sizes)]
    ones = [1] * len(shape)
    ones[dim] = 11
    index = torch.from_numpy(rng.integers(0, shape[dim], ones))
    return index.expand(sizes) if kind == "slices" else index.expand(sizes).contiguous()


def assert_bits(mine, theirs, *, zeros=True):
    """Hold that two tensors are alike: all bits but those of NaN and, without `zeros`, signs of zeros."""
    assert mine.dtype == theirs.dtype
    assert mine.stride() == theirs.stride()
    nan = mine.isnan()
    assert torch.equal(nan, theirs.isnan())
    mine, theirs = mine.masked_fill(nan, 0), theirs.masked_fill(nan, 0)
    assert torch.equal(mine, theirs)
    if mine.is_floating_point() and zeros:
        assert torch.equal(mine.signbit(), theirs.signbit())


def is_taken(name, dtype):
    return dtype not in HALVES or not any(each in name for each in ("add", "sum", "prod"))


@pytest.mark.parametrize("dtype", ORDERED)
@pytest.mark.parametrize("name", SCATTERS)
def test_scatters(forced, name, dtype):
    for shape in SHAPES:
        for dim in dims_of(shape):
            for kind in ("each", "few", "slices", "repeated"):
                index = places(shape, dim, kind)
                if name in ("scatter", "scatter_"):  # of several updates, PyTorch leaves any
                    order = torch.from_numpy(np.random.default_rng(3).permutation(shape[dim])[: index.shape[dim]])
                    index = order.reshape([-1 if d == dim % len(shape) else 1 for d in range(len(shape))]).expand(
                        [len(order) if d == dim % len(shape) else n for d, n in enumerate(index.shape)]
                    )
                more = 1 if kind == "few" else 0  # updates than indices, along each dimension
                x, source = some(dtype, shape), some(dtype, tuple(n + more for n in index.shape), seed=2)
                mine = x.clone()
                with takes(forced, name.split()[0], calls=int(is_taken(name, dtype))):
                    result = SCATTERS[name](mine, dim, index, source)
                assert (result is mine) == name.split()[0].endswith("_")
                with forced.accelerated(include=[]):
                    theirs = SCATTERS[name](x.clone(), dim, index, source)
                # Of zeros of both signs, PyTorch keeps the first in most calls, but another in some with rows.
                assert_bits(result, theirs, zeros="am" not in name or kind in ("each", "few"))


@pytest.mark.parametrize("dtype", [*ORDERED, "bool", "complex64", "complex128"])
def test_gather(forced, dtype):
    for shape in SHAPES:
        for dim in dims_of(shape):
            for kind in ("each", "few", "slices"):
                x, index = some(dtype, shape), places(shape, dim, kind)
                is_row = kind == "slices" and dim in (0, -len(shape)) and math.prod(shape) > shape[dim]
                with takes(forced, "gather", calls=int(not is_row)):
                    mine = torch.gather(x, dim, index)
                with forced.accelerated(include=[]):
                    assert_bits(mine, torch.gather(x, dim, index))


def test_gather_serves_take_along_dim(forced):
    x, index = some("float32", (30, 40)), places((30, 40), 1, "each")
    with takes(forced, "gather"):
        mine = torch.take_along_dim(x, index, 1)
    assert_bits(mine, torch.from_numpy(np.take_along_axis(x.numpy(), index.numpy(), 1)))


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_index_add_along_any_dimension(forced, dim):
    x, source, index = torch.randn(40, 30, 20), torch.randn(40, 30, 20), torch.arange(0)
    index = torch.from_numpy(np.random.default_rng(0).integers(0, x.shape[dim], x.shape[dim]))
    mine = x.clone()
    with takes(forced, "index_add_"):
        mine.index_add_(dim, index, source)
    forced.disable()
    assert_bits(mine, x.clone().index_add_(dim, index, source))


@pytest.mark.parametrize("dtype", ["bool", "complex64", "complex128"])
def test_bool_and_complex_numbers_are_added(forced, dtype):
    x, index = some(dtype, (9, 4)), torch.tensor([4, 0, 4, 4])
    source = some(dtype, (4, 4), seed=2)
    if x.is_complex():
        x, source = x * (1 + 0.3j), source * (0.7 - 1j)
    calls = {
        "index_put_": lambda: x.clone().index_put_((index,), source, accumulate=True),
        "index_add_": lambda: x.clone().index_add_(0, index, source),
        "scatter_add_": lambda: x.clone().scatter_add_(0, index[:, None].expand(4, 4), source),
    }
    for name, call in calls.items():
        with takes(forced, name):
            mine = call()
        with forced.accelerated(include=[]):
            assert torch.equal(mine, call()), name


def test_what_scatter_reduce_passes_on(forced):
    x, index, source = torch.ones(4, 3), places((4, 3), 0, "each"), some("float32", (11, 3))
    before = passed_on(forced, "scatter_reduce").get("arguments", 0)
    for options in ({"reduce": "mean"}, {"reduce": "amax", "include_self": False}):
        mine, theirs = outcomes(forced, lambda options=options: x.scatter_reduce(0, index, source, **options))
        assert_bits(mine, theirs)
    assert passed_on(forced, "scatter_reduce")["arguments"] == before + 2
    complex_numbers = x.to(torch.complex64)
    mine, theirs = outcomes(
        forced, lambda: complex_numbers.scatter_reduce(0, index, source.to(torch.complex64), "amax")
    )
    assert mine == theirs


BAD = {
    "a negative index": (torch.zeros(4, 2), 0, torch.tensor([[0, -1]]), torch.ones(1, 2)),
    "an index too high": (torch.zeros(4, 2), 0, torch.tensor([[0, 4]]), torch.ones(1, 2)),
    "no such dimension": (torch.zeros(4, 2), 2, torch.tensor([[0, 1]]), torch.ones(1, 2)),
    "other columns": (torch.zeros(4, 2), 0, torch.tensor([[0, 1, 1]]), torch.ones(1, 3)),
    "fewer updates": (torch.zeros(4, 2), 0, torch.tensor([[0, 1], [0, 1]]), torch.ones(1, 2)),
    "other types": (torch.zeros(4, 2), 0, torch.tensor([[0, 1]]), torch.ones(1, 2, dtype=torch.float64)),
    "other dimensions": (torch.zeros(4, 2), 0, torch.tensor([0, 1]), torch.ones(2)),
    "floats": (torch.zeros(4, 2), 0, torch.tensor([[0.0, 1.0]]), torch.ones(1, 2)),
    "int32": (torch.zeros(4, 2), 0, torch.tensor([[0, 1]], dtype=torch.int32), torch.ones(1, 2)),
    "no dimensions": (torch.zeros(()), 0, torch.tensor(0), torch.ones(())),
    "no indices": (torch.zeros(4, 2), 0, torch.zeros(0, 2, dtype=torch.int64), torch.ones(0, 2)),
}


@pytest.mark.parametrize("name", [*SCATTERS, "gather"])
@pytest.mark.parametrize("case", BAD)
def test_unsupported_arguments_give_the_outcome_of_pytorch(forced, name, case):
    tensors, (x, dim, index, source) = [], BAD[case]

    def call():
        tensors.append(x.clone())
        if name == "gather":
            return torch.gather(tensors[-1], dim, index).tolist()
        return SCATTERS[name](tensors[-1], dim, index, source).tolist()

    mine, theirs = outcomes(forced, call)
    assert mine == theirs
    assert torch.equal(*tensors)  # also after an error
    forced.enable()
    assert all(row["on"] for row in forced.report().values())


def test_updates_that_share_memory_are_passed_on(forced):
    x, index = torch.arange(8.0).reshape(4, 2), torch.tensor([[0, 1], [1, 0]])
    with pytest.raises(RuntimeError, match="unsupported operation"):  # PyTorch's own
        x.scatter_reduce_(0, index, x[:2], "amax")
    assert passed_on(forced, "scatter_reduce_")["memory is shared"]


@pytest.mark.parametrize("dtype", ORDERED)
def test_order_statistics(forced, dtype):
    for shape in SHAPES:
        x = some(dtype, shape)
        for dim in dims_of(shape):
            n = shape[dim]
            for keepdim in (False, True):
                for k in {1, min(2, n), n // 2 + 1, n}:
                    check_statistic(forced, "kthvalue", x, dim, k, dim, keepdim)
                check_statistic(forced, "median", x, dim, dim, keepdim)
                check_statistic(forced, "nanmedian", x.nan_to_num(2), dim, dim, keepdim)


def check_statistic(forced, name, x, dim, *args):
    """Compare the values with PyTorch's; the indices are of such values, and of the same NaN."""
    with takes(forced, name):
        mine = getattr(x, name)(*args)
    with forced.accelerated(include=[]):
        theirs = getattr(x, name)(*args)
    for one, other in zip(mine, theirs, strict=True):
        assert (one.shape, one.stride(), one.dtype) == (other.shape, other.stride(), other.dtype)
    assert torch.equal(mine.values.nan_to_num(9), theirs.values.nan_to_num(9))
    indices = mine.indices if mine.indices.ndim == x.ndim else mine.indices.unsqueeze(dim)
    found = x.gather(dim, indices).reshape(mine.values.shape)
    assert torch.equal(found.nan_to_num(9), mine.values.nan_to_num(9))
    if name == "median":
        is_nan = mine.values.isnan()
        assert torch.equal(mine.indices[is_nan], theirs.indices[is_nan])


def test_nanmedian_of_nan_is_passed_on(forced):
    x = torch.tensor([[1.0, math.nan, 3.0], [1, 2, 3]])
    assert x.nanmedian(1).values.tolist() == [1, 2]
    assert passed_on(forced, "nanmedian")["NaN"] == 1


@pytest.mark.parametrize("dtype", ORDERED)
@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_argmax(forced, name, dtype):
    for shape in SHAPES:
        for x in (some(dtype, shape), some(dtype, shape).T if len(shape) == 2 else some(dtype, (*shape, 2))[..., 1]):
            for dim in (None, *dims_of(shape)):
                for keepdim in (False, True):
                    with takes(forced, name):
                        mine = getattr(torch, name)(x, dim, keepdim)
                    with forced.accelerated(include=[]):
                        assert_bits(mine, getattr(torch, name)(x, dim, keepdim))


def test_errors_of_statistics_are_those_of_pytorch(forced):
    x = torch.arange(6.0).reshape(2, 3)
    for call in (
        lambda: x.kthvalue(4, 1),
        lambda: x.kthvalue(0, 1),
        lambda: x.kthvalue(1, 2),
        lambda: x.median(2),
        lambda: torch.zeros(0, 3).median(0),
        lambda: x.argmax(2),
        lambda: torch.zeros(0, 3).argmax(0),
        lambda: torch.ones(2, dtype=torch.bool).argmax(0),
        lambda: torch.tensor(3.0).median(0),
        lambda: torch.tensor(3.0).argmax(0),
    ):
        mine, theirs = outcomes(forced, lambda call=call: str(call()))
        assert mine == theirs


def test_gradients_and_vmap(forced):
    x = torch.randn(6, 50, dtype=torch.float64, requires_grad=True)
    index, source = places((6, 50), 1, "each"), torch.randn(6, 11, dtype=torch.float64, requires_grad=True)
    calls = {
        "gather": lambda x: x.gather(1, index),
        "scatter_add": lambda x: x.scatter_add(1, index, source),
        "scatter_reduce": lambda x: x.scatter_reduce(1, index, source, "amax"),
        "kthvalue": lambda x: x.kthvalue(7, 1).values,
        "median": lambda x: x.median(1).values,
    }
    for name, call in calls.items():

        def gradients(call=call, inputs=[x, source] if "scatter" in name else [x]):
            return [each.tolist() for each in torch.autograd.grad(call(x).square().sum(), inputs)]

        with takes(forced, name):
            call(x)
        mine, theirs = outcomes(forced, gradients)
        assert mine == theirs, name
        forced.enable()
    rows = x.detach()
    mapped = {
        "gather": lambda: torch.vmap(lambda x, i: x.gather(0, i))(rows, index),
        "argmax": lambda: torch.vmap(lambda x: x.argmax(0))(rows),
        "kthvalue": lambda: torch.vmap(lambda x: x.kthvalue(7, 0).values)(rows),
    }
    for name, call in mapped.items():
        with takes(forced, name):
            mine = call()
        with forced.accelerated(include=[]):
            assert torch.equal(mine, call())


@pytest.mark.parametrize("name", ["median", "nanmedian"])
def test_medians_of_no_elements_are_refused_whatever_the_least_size(name):
    from dmlcpu.interop.torch.kthvalue import KTHVALUES

    override = next(each for each in KTHVALUES if each.name == name)
    assert override.refusal(torch.empty(0, 5), 0) == "arguments"
    assert not override.refusal(torch.empty(1, 5), 0)
