"""PyTorch's own samples of the operators, every type, forward and gradient: the kernels do not change the results."""

import warnings

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("expecttest")  # which PyTorch's samples need

pytestmark = [
    pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental"),
    pytest.mark.filterwarnings("ignore:The reduce argument of torch.scatter"),
]
ORDERING = {name: name for name in ("topk", "sort", "unique", "kthvalue", "median", "nanmedian", "argmax", "argmin")}
ORDERING["msort"] = "sort"
TIED = ("topk", "sort", "kthvalue", "median", "nanmedian")  # PyTorch does not promise which of equal elements come
UPDATES = {"index_add": "index_add_", "index_put": "index_put_"}
COPIES = ("scatter", "scatter_add", "scatter_reduce", "gather", "take_along_dim")
OPERATORS = (*ORDERING, *UPDATES, *COPIES)


@pytest.fixture(scope="module")
def variants():
    """Return PyTorch's descriptions of the operators by name.

    They are imported here, not by each worker that lists the tests, and without SciPy, which only other operators'
    samples and references need: together these take a worker ten seconds.
    """
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        patch.setattr("torch.testing._internal.common_utils.TEST_SCIPY", False)
        from torch.testing._internal.common_methods_invocations import op_db
    found = {name: [info for info in op_db if info.name == name] for name in OPERATORS}
    assert all(found.values())
    return found


@pytest.fixture
def _quick_samples(monkeypatch):
    """Draw samples without a note of where each seed was set, for devices that are not there: most of the time."""
    monkeypatch.setattr(torch, "manual_seed", torch.default_generator.manual_seed)
    monkeypatch.setattr("torch.testing._internal.common_utils.extract_test_fn", lambda: None, raising=False)


def fresh(value):
    if isinstance(value, torch.Tensor):
        return value.detach().clone().requires_grad_(value.requires_grad)
    return value


def outcomes(info, sample):
    """Return the results and gradients of an operator, and of it in place, or their errors."""
    found = []
    for function in filter(None, (info.op, info.inplace_variant)):  # a method is the function
        x, args = fresh(sample.input), [fresh(each) for each in sample.args]
        try:
            results = function(x.clone() if function is info.inplace_variant else x, *args, **sample.kwargs)
        except (RuntimeError, IndexError, TypeError) as error:
            found.append((type(error), str(error)))
            continue
        results = results if isinstance(results, tuple) else (results,)
        found.append([each.detach().clone() for each in results])
        sums = [each.abs().sum() for each in results if each.requires_grad]
        if sums:
            inputs = [each for each in (x, *args) if isinstance(each, torch.Tensor) and each.requires_grad]
            found.append(torch.autograd.grad(sums, inputs, allow_unused=True))
    return found


def check(mine, theirs):
    if theirs and isinstance(theirs[0], type):
        assert mine == theirs
        return
    for one, other in zip(mine, theirs, strict=True):
        # What is equal is found in a tenth of the time.
        if one is None or one.dtype is torch.complex32 or one.dtype != other.dtype or not torch.equal(one, other):
            torch.testing.assert_close(one, other, equal_nan=True)
        assert one is None or one.stride() == other.stride()


def has_ties(x):
    return x.unique().numel() < x.numel()


def check_samples(forced, info, requires_grad):
    types = [each for each in info.dtypes if not requires_grad or each.is_floating_point or each is torch.complex64]
    name = {**ORDERING, **UPDATES, "take_along_dim": "gather"}.get(info.name, info.name)
    before = forced.report()[name]["taken"]
    for dtype in types:
        samples, found = [*info.sample_inputs("cpu", dtype, requires_grad=requires_grad)], []
        for switch in (forced.enable, forced.disable):
            switch()
            found.append([outcomes(info, sample) for sample in samples])
        for sample, mine, theirs in zip(samples, *found, strict=True):
            if info.name in TIED and has_ties(sample.input):
                mine, theirs = [mine[0][:1]], [theirs[0][:1]]
            for one, other in zip(mine, theirs, strict=True):
                check(one, other)
    # Samples of index_add with a gradient have an alpha; means are PyTorch's.
    is_taken = (info.name, requires_grad) != ("index_add", True) and info.variant_test_name != "mean"
    assert (forced.report()[name]["taken"] > before) == is_taken


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.usefixtures("_quick_samples")
def test_samples(forced, variants, name, requires_grad):
    checked = [info for info in variants[name] if info.supports_autograd or not requires_grad]
    for info in checked:
        check_samples(forced, info, requires_grad)
    if not checked:
        pytest.skip("it has no gradient")


def test_errors(forced, variants):
    infos = [info for name in OPERATORS for info in variants[name] if info.error_inputs_func]
    assert len(infos) >= 6
    for info in infos:
        forced.enable()
        samples = [each.sample_input for each in info.error_inputs("cpu")]
        samples = [each for each in samples if "out" not in each.kwargs]  # other overloads, which change their samples
        mine = [outcomes(info, sample) for sample in samples]
        forced.disable()
        assert mine == [outcomes(info, sample) for sample in samples], info.name
