"""The functions as operators of PyTorch."""

import itertools

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import dmlcpu  # noqa: E402
import dmlcpu.interop.torch  # noqa: E402

ours = torch.ops.dmlcpu
FIRST = torch.tensor([[1], [3], [1], [-1]])
ELEMENTS = torch.tensor([[1, 0], [3, 2], [1, 0], [-1, -3]])


def floats(*shape, seed=0, **options):
    return torch.from_numpy(np.random.default_rng(seed).permutation(np.prod(shape)).reshape(shape) / 7.0).to(**options)


def bytes_of(*shape):
    return torch.from_numpy(np.random.default_rng(1).integers(-128, 128, shape, dtype=np.int8))


def calls():
    x, updates = floats(4, 9, dtype=torch.float32).requires_grad_(), floats(4, 9, seed=1).float().requires_grad_()
    yield ours.top_k.default, (x, 3)
    yield ours.top_k.default, (x.detach().bfloat16(), 2, 0, False, False, "last")
    for reduction, mode in itertools.product(("none", "add"), ("raise", "drop", "clip")):
        yield ours.scatter_nd.default, (x, FIRST if mode == "raise" else 3 * FIRST, updates, reduction, mode)
    yield ours.scatter_nd.default, (x.detach(), FIRST, updates.detach(), "mul")
    a, b, one = bytes_of(4, 5), bytes_of(5, 6), torch.tensor(0.5)
    yield ours.quantized_matmul.default, (a, one, None, b, torch.rand(6) + 0.1, None, one, torch.tensor(3).byte())
    yield ours.quantized_matmul.default, (bytes_of(2, 1, 4, 5), one, None, b, one, None, one, None, torch.uint8)
    yield ours.quantized_matmul.default, (a[0], one, None, b[:, 0], one, None, one, None)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:The .grad attribute")  # of the checks themselves
@pytest.mark.parametrize(("operator", "args"), list(calls()))
def test_operator_passes_the_checks_of_pytorch(operator, args):
    torch.library.opcheck(operator, args)


def test_results_are_those_of_the_functions():
    x = floats(5, 8)
    values, indices = ours.top_k(x, 3, 0, False)
    expected = dmlcpu.top_k(x, 3, axis=0, mode="smallest")
    assert torch.equal(values, torch.from_numpy(expected.values))
    assert torch.equal(indices, torch.from_numpy(expected.indices))
    assert ours.top_k(x.bfloat16(), 3).__class__ is tuple
    assert ours.top_k(x.bfloat16(), 3)[0].dtype is torch.bfloat16
    got = ours.scatter_nd(x, torch.tensor([[1], [1]]), torch.ones(2, 8).double(), "add")
    assert np.array_equal(got, dmlcpu.scatter_nd(x, [[1], [1]], np.ones((2, 8)), reduction="add"))
    a, b = bytes_of(4, 5), bytes_of(5, 6)
    arguments = (a, torch.tensor(0.5), None, b, torch.tensor(0.25), None, torch.tensor(9.0), None)
    got = ours.quantized_matmul(*arguments, out_dtype=torch.uint8)
    assert np.array_equal(got, dmlcpu.quantized_matmul(a, 0.5, None, b, 0.25, None, 9.0, None, out_dtype="uint8"))


def test_errors_are_those_of_the_functions():
    with pytest.raises(dmlcpu.DmlError, match="top_k: k is 9; allowed: 0 to 8"):
        ours.top_k(floats(5, 8), 9)
    with pytest.raises(dmlcpu.IndexOutOfRangeError, match=r"scatter_nd: indices\[0, 0\] is 5"):
        ours.scatter_nd(floats(5, 8), torch.tensor([[5]]), torch.ones(1, 8).double())


def test_gradients_of_top_k():
    x = floats(4, 3).requires_grad_()
    for axis in (0, 1):
        assert torch.autograd.gradcheck(lambda x, axis=axis: ours.top_k(x, 2, axis)[0], x)
        assert torch.autograd.gradgradcheck(lambda x, axis=axis: ours.top_k(x, 2, axis)[0], x)


@pytest.mark.parametrize("reduction", ["none", "add"])
@pytest.mark.parametrize("mode", ["raise", "drop", "clip"])
@pytest.mark.parametrize(
    "indices", [FIRST, ELEMENTS, torch.zeros(4, 0, dtype=torch.int32), torch.zeros(0, 1, dtype=torch.int64)]
)
def test_gradients_of_scatter_nd(reduction, mode, indices):
    x = floats(4, 3).requires_grad_()
    indices = indices if mode == "raise" else 3 * indices
    updates = torch.rand(*indices.shape[:-1], *x.shape[indices.shape[-1] :], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x, u: ours.scatter_nd(x, indices, u, reduction, mode), (x, updates))
    assert torch.autograd.gradgradcheck(lambda x, u: ours.scatter_nd(x, indices, u, reduction, mode), (x, updates))


def test_gradients_that_are_not_finite_do_not_spread():
    x, updates = torch.zeros(3, requires_grad=True), torch.ones(3, requires_grad=True)
    y = ours.scatter_nd(x, torch.tensor([[7], [1], [1]]), updates, "none", "drop")
    y.backward(torch.tensor([float("inf"), float("nan"), 1.0]))
    assert x.grad.tolist() == [float("inf"), 0, 1]
    assert updates.grad[:2].tolist() == [0, 0]
    assert updates.grad[2].isnan()


@pytest.mark.parametrize("reduction", ["none", "add"])
def test_gradients_of_empty_tensors_and_of_unsigned_indices(reduction):
    x, updates = torch.zeros(0, 3, requires_grad=True), torch.ones(2, 3, requires_grad=True)
    ours.scatter_nd(x, torch.tensor([[0], [1]]), updates, reduction, "drop").sum().backward()
    assert updates.grad.tolist() == [[0] * 3] * 2
    x, updates = torch.zeros(3, requires_grad=True), torch.ones(2, requires_grad=True)
    indices = torch.from_numpy(np.array([[2**64 - 1], [1]], np.uint64))
    for mode, expected in (("drop", [0, 2]), ("clip", [3, 2])):
        y = ours.scatter_nd(x, indices, updates, reduction, mode)
        (found,) = torch.autograd.grad(y, updates, torch.tensor([1.0, 2.0, 3.0]))
        assert found.tolist() == expected


def test_fakes_refuse_as_the_functions_do():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        x, a = torch.empty(3, 4), torch.empty(3, 4, dtype=torch.int8)
        with pytest.raises(dmlcpu.DmlError, match="top_k: axis is 5"):
            ours.top_k(x, 2, 5)
        with pytest.raises(RuntimeError, match="top_k: k is 9; allowed: 0 to 4"):
            ours.top_k(x, 9)
        with pytest.raises(RuntimeError, match="quantized_matmul: b has 3 rows; allowed: K = 4"):
            ours.quantized_matmul(a, torch.ones(()), None, a, torch.ones(()), None, torch.ones(()), None)


def test_reduction_without_gradient_is_refused_in_backward():
    y = ours.scatter_nd(floats(4, 3).requires_grad_(), FIRST, torch.ones(4, 3).double(), "max")
    with pytest.raises(dmlcpu.UnsupportedError, match="reduction of what requires a gradient is 'max'; allowed: none"):
        y.sum().backward()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # PyTorch's, while it compiles
def test_operators_stay_in_a_compiled_graph():
    graphs = []

    def backend(graph, _):
        graphs.append(str(graph.graph))
        return graph.forward

    def program(x, index, a, b, scale):
        values, _ = ours.top_k(x, 3)
        return ours.scatter_nd(values * 2, index, values[:1]), ours.quantized_matmul(
            a, scale, None, b, scale, None, scale, None
        )

    arguments = (floats(4, 9), torch.tensor([[2]]), bytes_of(2, 3), bytes_of(3, 2), torch.tensor(1.0))
    got = torch.compile(program, backend=backend, fullgraph=True)(*arguments)
    for one, other in zip(got, program(*arguments), strict=True):
        assert torch.equal(one, other)
    (graph,) = graphs
    assert all(f"dmlcpu.{name}" in graph for name in ("top_k", "scatter_nd", "quantized_matmul"))


def test_other_devices_are_refused_by_name():
    with pytest.raises(NotImplementedError, match="SparseCPU"):
        ours.top_k(floats(4, 3).to_sparse(), 2)
