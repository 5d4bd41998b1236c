"""The results of PyTorch's operators with and without these kernels."""

import contextlib

import numpy as np
import pytest
from torch_calls import HALVES, ORDERED, outcomes, passed_on, takes

torch = pytest.importorskip("torch")


def numbers(shape, dtype, seed=0, *, is_distinct=False):
    generator = np.random.default_rng(seed)
    size = int(np.prod(shape))
    values = generator.permutation(size) if is_distinct else generator.integers(0, 5, size)
    return torch.from_numpy(values.reshape(shape)).to(getattr(torch, dtype))


@pytest.mark.parametrize("dtype", ORDERED)
@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize(("shape", "k", "dim"), [((50,), 3, 0), ((4, 30), 30, -1), ((30, 4), 7, 0), ((3, 9, 2), 2, 1)])
def test_topk(forced, dtype, largest, shape, k, dim):
    x = numbers(shape, dtype, is_distinct=True) - 30
    with takes(forced, "topk"):
        values, indices = torch.topk(x, k, dim, largest)
    forced.disable()
    expected = torch.topk(x, k, dim, largest)
    assert torch.equal(values, expected.values)
    assert torch.equal(indices, expected.indices)


def test_ties_come_by_index_and_nan_as_in_pytorch(forced):
    x = torch.tensor([1.0, float("nan"), 2.0, 2.0, float("inf"), float("nan"), 1.0])
    assert torch.topk(x, 6).indices.tolist() == [1, 5, 4, 2, 3, 0]
    assert torch.topk(x, 3, largest=False).indices.tolist() == [0, 6, 2]
    forced.disable()
    assert torch.topk(x, 6).values[:2].isnan().all()
    assert torch.topk(x, 3, largest=False).values.tolist() == [1, 1, 2]


def test_topk_is_sorted_whether_or_not_it_has_to_be(forced):
    x = numbers((3, 1000), "float32", is_distinct=True)
    with takes(forced, "topk", calls=2):
        for one, other in zip(x.topk(400, sorted=False), x.topk(400), strict=True):
            assert torch.equal(one, other)


def test_layouts(forced):
    base = numbers((6, 8, 10), "float32", is_distinct=True)
    layouts = {
        "strided": base[::2, 1:, ::3],
        "transposed": base.transpose(0, 2),
        "expanded": base[:, :1].expand(6, 5, 10),
        "offset": base[3],
    }
    for name, x in layouts.items():
        got = torch.topk(x, 2, 0)
        assert torch.equal(got.values, torch.topk(x.contiguous(), 2, 0).values), name
        assert torch.equal(got.values, x.sort(dim=0, descending=True).values[:2]), name


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_tensors_can_be_resized_after_a_call(forced, dtype):
    x, source, index = numbers((40,), dtype), numbers((2,), dtype), torch.tensor([1, 2])
    with takes(forced, "scatter"):
        result = x.scatter(0, index, source)
    for each in (x, index, source, result, *x.topk(3)):
        each.resize_(100)


def test_topk_with_out_is_passed_on(forced):
    x, values, indices = numbers((40,), "float32"), torch.empty(3), torch.empty(3, dtype=torch.int64)
    with takes(forced, "topk", calls=0):
        torch.topk(x, 3, out=(values, indices))
    assert torch.equal(values, x.sort(descending=True).values[:3])


@pytest.mark.parametrize("sizes", [(8, 0), (5, 1), (0,)])
def test_empty_results_and_errors_are_those_of_pytorch(forced, sizes):
    x = torch.zeros(sizes)
    for k in (0, 1, 9, -1):
        mine, theirs = outcomes(forced, lambda k=k: [each.shape for each in torch.topk(x, k)])
        assert mine == theirs


def test_gradients(forced):
    x = numbers((5, 40), "float64", is_distinct=True).requires_grad_()
    with takes(forced, "topk"):
        x.topk(3).values.square().sum().backward()
    expected = torch.zeros(5, 40, dtype=torch.float64)
    indices = x.detach().sort(descending=True).indices[:, :3]
    expected.scatter_(1, indices, 2 * x.detach().gather(1, indices))
    assert torch.equal(x.grad, expected)


# Each changes x in place: by an index of rows and rows of updates.
IN_PLACE = {
    "index_add_": lambda x, index, source: x.index_add_(0, index, source),
    "index_put_": lambda x, index, source: x.index_put_((index,), source),
    "index_put_ add": lambda x, index, source: x.index_put_((index,), source, accumulate=True),
    "scatter_": lambda x, index, source: x.scatter_(0, over_rows(index, source), source),
    "scatter_add_": lambda x, index, source: x.scatter_add_(0, over_rows(index, source), source),
}


def over_rows(index, source):
    return index.reshape(-1, *[1] * (source.ndim - 1)).expand(source.shape)


@pytest.mark.parametrize("dtype", ORDERED)
@pytest.mark.parametrize("shape", [(), (3,), (2, 40)])
@pytest.mark.parametrize("name", IN_PLACE)
def test_updates_in_place(forced, name, shape, dtype):
    adds = "add" in name
    index = torch.tensor([4, 0, 4, 9, 2, 4]) if adds else torch.tensor([4, 0, 9, 2])
    x, source = numbers((10, *shape), dtype), numbers((len(index), *shape), dtype, seed=1)
    got = x.clone()
    with takes(forced, name.split()[0], calls=not adds or dtype not in HALVES):
        assert IN_PLACE[name](got, index, source) is got
    forced.disable()
    assert torch.equal(got, IN_PLACE[name](x.clone(), index, source))


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("name", ["index_add_", "index_put_ add", "scatter_add_"])
def test_sums_of_halves_equal_those_of_pytorch(forced, name, dtype):
    x, source = torch.zeros(2, 3, dtype=getattr(torch, dtype)), torch.ones(5000, 3, dtype=getattr(torch, dtype))
    index = torch.ones(5000, dtype=torch.int64)
    assert torch.equal(*outcomes(forced, lambda: IN_PLACE[name](x.clone(), index, source)))


@pytest.mark.parametrize("dtype", ["bool", "complex64"])
@pytest.mark.parametrize("name", ["index_put_", "scatter_"])
def test_types_that_can_only_be_assigned(forced, name, dtype):
    x, index, source = numbers((10, 3), dtype), torch.tensor([4, 0]), numbers((2, 3), dtype, seed=1)
    got = x.clone()
    with takes(forced, name):
        IN_PLACE[name](got, index, source)
    x[index] = source
    assert torch.equal(got, x)


@pytest.mark.parametrize("name", ["index_put_", "scatter_"])
def test_last_of_several_assigned_values_remains(forced, name):
    x = torch.zeros(3, 2)
    IN_PLACE[name](x, torch.tensor([1, 1]), torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
    assert x.tolist() == [[0, 0], [3, 4], [0, 0]]


@pytest.mark.parametrize("accumulate", [False, True])
def test_index_put_takes_several_negative_indices_and_broadcasts_values(forced, accumulate):
    rows, columns = torch.tensor([[0, -1], [2, 1]]), torch.tensor([[3, 2], [-4, 1]])
    for values in (torch.tensor(5.0), torch.arange(2.0), torch.arange(4.0).reshape(2, 2), torch.ones(2, 1)):
        got, expected = torch.ones(3, 4), torch.ones(3, 4)
        with takes(forced, "index_put_"):
            got.index_put_((rows, columns), values, accumulate)
        forced.disable()
        expected.index_put_((rows, columns), values, accumulate)
        forced.enable()
        assert torch.equal(got, expected)


BAD = {
    "a negative index": (torch.zeros(4, 2), torch.tensor([0, -1]), torch.ones(2, 2)),
    "an index too high": (torch.zeros(4, 2), torch.tensor([0, 4]), torch.ones(2, 2)),
    "other columns": (torch.zeros(4, 3), torch.tensor([0, 1]), torch.ones(2, 2)),
    "fewer updates": (torch.zeros(4, 2), torch.tensor([0, 1, 2]), torch.ones(2, 2)),
    "other types": (torch.zeros(4, 2), torch.tensor([0, 1]), torch.ones(2, 2, dtype=torch.float64)),
    "indices of floats": (torch.zeros(4, 2), torch.tensor([0.0, 1.0]), torch.ones(2, 2)),
    "int32": (torch.zeros(4, 2), torch.tensor([0, 1], dtype=torch.int32), torch.ones(2, 2)),
    "a mask": (torch.zeros(2, 2), torch.tensor([True, False]), torch.ones(1, 2)),
}


@pytest.mark.parametrize("name", IN_PLACE)
@pytest.mark.parametrize("case", BAD)
def test_unsupported_arguments_give_the_outcome_of_pytorch(forced, name, case):
    tensors, (x, index, source) = [], BAD[case]

    def call():
        tensors.append(x.clone())
        return IN_PLACE[name](tensors[-1], index, source).tolist()

    mine, theirs = outcomes(forced, call)
    assert mine == theirs
    assert torch.equal(*tensors)  # also after an error
    assert forced.report()[name.split()[0]]["on"] is False  # by disable, and not by a failure
    forced.enable()
    assert forced.report()[name.split()[0]]["on"] is True


def test_shared_memory_and_gaps_are_passed_on(forced):
    x = torch.arange(8.0).reshape(4, 2)
    with pytest.raises(RuntimeError, match="single memory location"):  # PyTorch's own
        x.index_add_(0, torch.tensor([0, 1]), x[2:])
    torch.zeros(4, 4)[:, ::2].index_add_(0, torch.tensor([0, 1]), torch.ones(2, 2))
    reasons = passed_on(forced, "index_add_")
    assert reasons["memory is shared"]
    assert reasons["layout"]


def test_other_arguments_are_passed_on(forced):
    x, source = torch.zeros(4, 4), torch.ones(2, 4)
    index = torch.tensor([0, 2])
    assert x.clone().index_add_(0, index, source, alpha=2)[2, 0] == 2
    assert x.clone().index_add_(1, index, source.T)[0].tolist() == [1, 0, 1, 0]
    assert x.clone().scatter_add_(1, index.expand(4, 2), torch.ones(4, 2))[0].tolist() == [1, 0, 1, 0]
    assert x.clone().index_put_((torch.tensor(1),), torch.tensor(3.0))[1].tolist() == [3, 3, 3, 3]
    assert passed_on(forced, "index_add_")["arguments"]


@pytest.mark.parametrize("rows", [0, 4])
def test_bad_index_add_of_no_elements_does_no_harm(forced, rows):
    def call():
        return torch.zeros(rows, 5).index_add_(0, torch.arange(0 if rows else 3), torch.ones(3, 5)).tolist()

    mine, theirs = outcomes(forced, call)
    assert mine == theirs
    forced.enable()
    with contextlib.suppress(RuntimeError):
        call()
    assert forced.report()["index_add_"]["on"]


def test_index_put_without_indices_is_passed_on(forced):
    with pytest.raises((RuntimeError, IndexError)):
        torch.ops.aten.index_put_(torch.zeros(4), [], torch.ones(4))
    assert forced.report()["index_put_"]["on"]


def test_subclass_sees_only_the_call_of_the_user(forced):
    seen = []

    class Watched(torch.Tensor):
        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):
            seen.append(function)
            return super().__torch_function__(function, types, args, kwargs or {})

    update = torch.ones(1, 2).as_subclass(Watched)
    del seen[:]
    torch.zeros(3, 2).index_add_(0, torch.tensor([1]), update)
    assert len(seen) == 1
    assert passed_on(forced, "index_add_")["subclass of Tensor"]


def test_subclasses_are_left_alone(forced):
    class Tagged(torch.Tensor):
        pass

    before = passed_on(forced, "topk").get("subclass of Tensor", 0)
    assert torch.topk(torch.arange(9.0).as_subclass(Tagged), 2).values.tolist() == [8, 7]
    assert passed_on(forced, "topk")["subclass of Tensor"] == before + 1
    with takes(forced, "topk"):
        torch.topk(torch.nn.Parameter(torch.arange(9.0)), 2)


@pytest.mark.parametrize("shape", [(1, 7, 5), (20, 64, 40), (33, 1, 8)])
@pytest.mark.parametrize("order", ["rows", "columns"])
def test_int_mm(forced, shape, order):
    M, K, N = shape
    generator = np.random.default_rng(3)
    a, b = (torch.from_numpy(generator.integers(-128, 128, each, dtype=np.int8)) for each in ((M, K), (K, N)))
    with takes(forced, "_int_mm"):
        got = torch._int_mm(a, b if order == "rows" else b.T.contiguous().T)
    assert got.dtype is torch.int32
    assert torch.equal(got, (a.int()[:, :, None] * b.int()).sum(dim=1, dtype=torch.int32))


def test_int_mm_raises_the_errors_of_pytorch(forced):
    for a, b in ((torch.zeros(2, 3), torch.zeros(3, 4)), (torch.zeros(2, 3).char(), torch.zeros(4, 4).char())):
        mine, theirs = outcomes(forced, lambda a=a, b=b: torch._int_mm(a, b))
        assert mine == theirs
        assert mine[0] is RuntimeError
