"""Switching on and off, the report, and failures, which do no harm."""

import inspect
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import get_args, get_type_hints

import pytest

torch = pytest.importorskip("torch")
from processes import forks_of, run  # noqa: E402
from torch_calls import takes  # noqa: E402

NAMES = [
    "topk", "sort", "unique", "kthvalue", "median", "nanmedian", "argmax", "argmin", "_int_mm", "index_add_",
    "scatter_add_", "scatter_add", "scatter_", "scatter", "scatter_reduce_", "scatter_reduce", "index_put_", "gather",
]  # fmt: skip


def is_on(ours):
    return {name for name, row in ours.report().items() if row["on"]}


def test_names(torch_overrides):
    for options, right in [
        ({}, {*NAMES}),
        ({"include": ["topk", "scatter_"], "exclude": ["scatter_"]}, {"topk"}),
        ({"include": iter(["topk"])}, {"topk"}),
        ({"exclude": ["topk"]}, {*NAMES} - {"topk"}),
    ]:
        torch_overrides.enable(**options)
        assert is_on(torch_overrides) == right
    torch_overrides.disable()
    assert is_on(torch_overrides) == set()


def test_type_checkers_know_the_names(torch_overrides):
    for function in (torch_overrides.enable, torch_overrides.accelerated):
        hint = get_type_hints(inspect.unwrap(function))["exclude"]
        assert get_args(get_args(hint)[0]) == tuple(NAMES)


@pytest.mark.parametrize("argument", ["include", "exclude"])
def test_bad_names_are_refused_and_change_nothing(torch_overrides, argument):
    torch_overrides.enable(include=["topk"])
    with pytest.raises(ValueError, match=rf"enable: {argument} has 'argsort'; allowed: topk, .*scatter_"):
        torch_overrides.enable(**{argument: ["argsort"]})
    for bad in ("topk", 5):
        with pytest.raises(TypeError, match=f"enable: {argument} is {bad!r}; allowed: a list of names"):
            torch_overrides.enable(**{argument: bad})
    with pytest.raises(ValueError, match=r"has \['topk'\]; allowed"):
        torch_overrides.enable(**{argument: [["topk"]]})
    assert is_on(torch_overrides) == {"topk"}


def test_for_a_while(torch_overrides):
    torch_overrides.enable(include=["scatter_"])
    with torch_overrides.accelerated(include=["topk"]):
        with torch_overrides.accelerated():
            assert is_on(torch_overrides) == set(NAMES)
        assert is_on(torch_overrides) == {"topk"}
    assert is_on(torch_overrides) == {"scatter_"}
    with pytest.raises(KeyError), torch_overrides.accelerated():
        raise KeyError
    assert is_on(torch_overrides) == {"scatter_"}
    torch_overrides.enable()
    with torch_overrides.accelerated(include=["topk"]):
        torch_overrides.disable()
    assert is_on(torch_overrides) == set()


def test_disable_restores_the_kernel_of_pytorch(forced):
    before = forced.report()["topk"]
    forced.disable()
    torch.topk(torch.arange(10.0), 2)
    assert forced.report()["topk"] == {**before, "on": False}
    registered = torch._C._dispatch_dump_table("aten::topk")
    assert "PythonKernel" not in registered
    assert "switches.py" not in registered


def test_switching_beside_threads_that_call(forced):
    stop, x = threading.Event(), torch.arange(100.0)

    def call():
        found = set()
        while not stop.is_set():
            found.add(torch.topk(x, 1).indices.item())
        return found

    with ThreadPoolExecutor(2) as pool:
        others = [pool.submit(call) for _ in range(2)]
        try:
            for _ in range(300):
                with forced.accelerated():
                    torch.topk(torch.arange(50.0), 2)
        finally:
            stop.set()
    assert [each.result() for each in others] == [{99}, {99}]


def test_reasons_are_counted(torch_overrides):
    torch_overrides.enable()
    before = torch_overrides.report()["topk"]["passed on"].get("small", 0)
    torch.topk(torch.arange(10.0), 2)
    assert torch_overrides.report()["topk"]["passed on"]["small"] == before + 1


def test_operator_whose_kernel_raises_is_given_back(forced, monkeypatch, caplog):
    from dmlcpu.interop.torch import topk

    monkeypatch.setattr(topk, "select", lambda *args, **kwargs: 1 / 0)
    assert torch.topk(torch.arange(10.0), 2).indices.tolist() == [9, 8]
    assert "topk" not in is_on(forced)
    assert "scatter_" in is_on(forced)
    assert forced.report()["topk"]["passed on"]["ZeroDivisionError: division by zero"] == 1
    assert "topk runs on PyTorch's kernel from now on, as it raised ZeroDivisionError" in caplog.text
    assert torch.topk(torch.arange(10.0), 2).indices.tolist() == [9, 8]


def test_operator_that_failed_within_accelerated_stays_off(forced, monkeypatch):
    from dmlcpu.interop.torch import topk

    with forced.accelerated():
        monkeypatch.setattr(topk, "select", lambda *args, **kwargs: 1 / 0)
        torch.topk(torch.arange(10.0), 2)
    assert is_on(forced) == set(NAMES) - {"topk"}


@pytest.mark.parametrize("is_on", [True, False])
@pytest.mark.parametrize("name", NAMES)
def test_large_call_that_is_passed_on_releases_the_gil(torch_overrides, monkeypatch, name, is_on):
    """By another overload: see `_kernel`. There is none for index_put_ and unique."""
    from dmlcpu.interop.torch import switches

    rows = (0, torch.arange(5000), torch.ones(5000))
    args = {
        "topk": (torch.arange(5000.0), 3),
        "sort": (torch.arange(5000.0),),
        "unique": (torch.arange(5000),),
        **{name: (torch.arange(5000.0), 0) for name in ("median", "nanmedian", "argmax", "argmin")},
        "kthvalue": (torch.arange(5000.0), 3),
        **{name: (torch.zeros(9000), *rows, "sum") for name in ("scatter_reduce_", "scatter_reduce")},
        "gather": (torch.zeros(9000), *rows[:2]),
        "_int_mm": (torch.ones(64, 64, dtype=torch.int8), torch.ones(64, 64, dtype=torch.int8)),
        "index_put_": (torch.zeros(9000), [rows[1]], rows[2]),
    }.get(name, (torch.zeros(9000), *rows))
    monkeypatch.setattr(switches.THRESHOLDS, "loss", lambda *args, **kwargs: "because")
    aten = torch.ops.aten
    function = {"sort": aten.sort.default, "unique": aten._unique2}.get(name) or getattr(aten, name)
    expected, called = function(args[0].clone(), *args[1:]), []
    switch = switches._SWITCHES[name]
    if switch.override.aside:
        aside = switch.override.aside
        watched = switch.override._replace(
            least=1, aside=lambda *args, **kwargs: (called.append(1), aside(*args, **kwargs))[1]
        )
        monkeypatch.setattr(switch, "override", watched)
    with torch_overrides.accelerated() if is_on else torch_overrides.accelerated(exclude=NAMES):
        switch.enter()
        got = function(*args)
    assert called == ([] if name in ("index_put_", "unique") else [1])
    torch.testing.assert_close(got, expected, rtol=0, atol=0)


def test_call_uses_at_most_the_threads_of_pytorch(forced, monkeypatch):
    from dmlcpu.interop.torch import topk
    from dmlcpu.runtime.threads import budget

    seen, select = [], topk.select

    def watched(*arrays, most_threads):
        seen.append(budget(most_threads).threads)
        select(*arrays, most_threads=most_threads)

    monkeypatch.setattr(topk, "select", watched)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        torch.topk(torch.arange(10.0), 2)
    finally:
        torch.set_num_threads(before)
    assert seen == [1]


def test_eight_threads(forced):
    x = torch.randperm(20_000).float().reshape(20, 1000)
    expected = x.sort(dim=1, descending=True).indices[:, :9]
    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(lambda _: torch.equal(torch.topk(x, 9).indices, expected), range(160)))


def test_transforms_and_modes(forced):
    x = torch.randperm(600).float().reshape(6, 100)
    expected = x.sort(dim=1, descending=True).indices[:, :3]
    assert torch.equal(torch.func.vmap(lambda row: torch.topk(row, 3)[1])(x), expected)
    gradient = torch.func.grad(lambda y: torch.topk(y, 3)[0].sum())(x)
    assert torch.equal(gradient, torch.zeros(6, 100).scatter_(1, expected, 1.0))
    with torch.inference_mode():
        assert torch.equal(torch.topk(x, 3).indices, expected)
        assert torch.zeros(3, 2).index_add_(0, torch.tensor([1]), torch.ones(1, 2))[1].tolist() == [1, 1]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(torch.topk(x, 3).indices, expected)


def test_saved_tensor_changed_in_place_is_an_error(forced):
    x = torch.ones(4, 2, requires_grad=True)
    squared = x * 1
    product = squared * squared
    squared.index_add_(0, torch.tensor([1]), torch.ones(1, 2))
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.sum().backward()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # PyTorch's, while it compiles
def test_compiled_programs(forced):
    def program(x):
        values, indices = torch.topk(x * 2, 3)
        return values + 1, indices

    x = torch.randperm(600).float().reshape(6, 100)
    before = forced.report()["topk"]["taken"]
    values, indices = torch.compile(program, backend="aot_eager", fullgraph=True)(x)
    assert forced.report()["topk"]["taken"] > before
    forced.disable()
    expected = program(x)
    assert torch.equal(values, expected[0])
    assert torch.equal(indices, expected[1])


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # PyTorch's, while it compiles
def test_calls_between_two_graphs_are_not_traced(forced):
    graphs = []

    def compile_graph(graph, _):
        graphs.append(graph)
        return graph

    def program(x):
        return torch.unique(x * 2) + 1  # how many there are is not known before: PyTorch ends a graph here

    before = forced.report()["unique"]["taken"]
    assert torch.compile(program, backend=compile_graph)(torch.arange(100) % 3).tolist() == [1, 3, 5]
    assert forced.report()["unique"]["taken"] == before + 1
    assert len(graphs) == 2


def test_modes_do_not_see_what_a_compiled_call_runs(forced):
    seen = []

    class Watch(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            seen.append(function)
            return function(*args, **(kwargs or {}))

    graph = torch._C.parse_ir("graph(%x : Tensor):\n  %y : Tensor = aten::msort(%x)\n  return (%y)")
    call = torch._C._create_function_from_graph("call", graph)  # calls the operator without Python's wrapper
    x = torch.tensor([3.0, 1.0, 2.0])
    with takes(forced, "sort"), Watch():
        call(x)
    assert not seen


IMPORTS = """
    import torch, dmlcpu.interop.torch as ours
    from dmlcpu.interop.torch import switches
"""
CALLS = """
    switches.THRESHOLDS.loss = lambda *args, **kwargs: ""
    ours.enable()
    x = torch.randperm(1 << 18).float().reshape(4, -1)
    expected = x.sort(dim=1, descending=True).indices[:, :7]
    assert torch.equal(torch.topk(x, 7).indices, expected)
    row = ours.report()["topk"]
"""


@pytest.fixture(scope="module")
def run_fork():
    """Run code in a fork of a process that has imported PyTorch, which takes seconds, and has called nothing."""
    with forks_of(IMPORTS) as run_fork:
        yield run_fork


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_topk_returns_in_a_forked_child(run_fork):  # PyTorch's own kernel hangs there
    run_fork(
        CALLS
        + """
    import os
    assert row["taken"] == 1
    child = os.fork()
    if child == 0:
        os._exit(not torch.equal(torch.topk(x, 7).indices, expected))
    assert os.waitpid(child, 0)[1] == 0
    """
    )


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_shipped_sizes_hold_in_a_forked_child(run_fork, tmp_path):
    run_fork(
        CALLS
        + f"    folder = {str(tmp_path)!r}"
        + """
    import os
    from dmlcpu.interop.torch import shipped
    from dmlcpu.interop.torch.thresholds import Thresholds
    shipped.least = lambda *args: 4600
    switches.THRESHOLDS = Thresholds(lambda: folder, time_calls=lambda *args: os._exit(2), is_busy=lambda: False)
    child = os.fork()
    if child == 0:
        good = all(torch.topk(torch.arange(n), 2).indices.tolist() == [n - 1, n - 2] for n in (4500.0, 5000.0))
        found = ours.report()["topk"]
        os._exit(0 if good and (found["taken"], found["passed on"]) == (2, {"PyTorch is faster": 1}) else 1)
    assert os.waitpid(child, 0)[1] == 0
    """
    )


@pytest.mark.skipif(os.name == "nt", reason="folders are protected otherwise")
def test_no_cache_and_no_compiler(tmp_path):
    found = run(
        """
        import torch, dmlcpu.interop.torch as ours
        from dmlcpu.interop.torch import switches
        switches.THRESHOLDS.loss = lambda *args, **kwargs: ""
        ours.enable()
        assert torch.arange(1 << 16).roll(5).argmax(0).item() == 4  # a kernel that compiles quickly
        row = ours.report()["argmax"]
        print(row["taken"] + sum(row["passed on"].values()))
        """,
        NUMBA_CACHE_DIR=os.devnull,
        HOME=os.devnull,
        XDG_CACHE_HOME=os.devnull,
        PATH="",
    )
    assert found.split() == ["1"]


def test_compilation_switched_off():
    assert "switched off" in run(IMPORTS + CALLS + "    print(row)\n", NUMBA_DISABLE_JIT="1")


def test_workers_of_a_data_loader(run_fork):
    run_fork(
        """
        class Rows(torch.utils.data.Dataset):
            def __len__(self): return 8
            def __getitem__(self, i):
                x = torch.arange(1 << 16).float().roll(i)
                return torch.topk(x, 3).indices

        ours.enable()
        loader = torch.utils.data.DataLoader(Rows(), batch_size=4, num_workers=2)
        for batch in loader:
            for i, row in enumerate(batch):
                assert row[0] != row[1]
        got = torch.cat(list(loader))
        n = 1 << 16
        assert got.tolist() == [[(n - 1 + i) % n, (n - 2 + i) % n, (n - 3 + i) % n] for i in range(8)]
        """
    )
