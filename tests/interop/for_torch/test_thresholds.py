"""The sizes from which calls are taken."""

import itertools
import json
import math
from concurrent.futures import ThreadPoolExecutor

import pytest

torch = pytest.importorskip("torch")


@pytest.fixture
def make_thresholds(torch_overrides, tmp_path):
    """Return a function that makes thresholds as a new process has them, kept in a folder of the test."""
    from dmlcpu.interop.torch.thresholds import Thresholds

    return lambda: Thresholds(lambda: str(tmp_path), is_busy=lambda: False, pause_s=0)


@pytest.fixture
def thresholds(make_thresholds):
    return make_thresholds()


@pytest.fixture
def topk():
    from dmlcpu.interop.torch.topk import TOPK

    return TOPK


def loss(thresholds, topk, x, k):
    return thresholds.loss(topk, print, topk.size(x, (k,)), x, k)


def clock(thresholds, won, *, disturbed=()):
    """Make dmlcpu faster only at the sizes of `won`, except when a disturbed one is first measured; list the sizes."""
    measured = []

    def times(mine, theirs):
        size = mine.args[1][0].numel()
        is_won = (size in won) != (size in disturbed and size not in measured)
        measured.append(size)
        return [(10, 100) if is_won else (100, 10)]

    thresholds.time_calls = times
    return measured


def test_size_between_two_winning_sizes_is_taken(thresholds, topk):
    measured = clock(thresholds, {1 << 14, 1 << 15, 1 << 16, 1 << 20})
    taken = [size for size in (4096, 5000, 16384, 20000, 65536, 70000, 1 << 20, 1 << 21)
             if not loss(thresholds, topk, torch.zeros(size), 3)]  # fmt: skip
    assert taken == [16384, 20000, 65536, 1 << 20, 1 << 21]
    assert measured[:9] == [1 << power for power in range(12, 21)]
    assert measured[9:] == [1 << power for power in (13, 14, 16, 17, 19, 20)]  # on both sides of changes, again


@pytest.mark.parametrize("power", range(12, 21))
def test_one_disturbed_measurement_changes_nothing(thresholds, topk, power):
    clock(thresholds, {1 << each for each in range(15, 21)}, disturbed={1 << power})
    taken = [each for each in range(12, 23) if not loss(thresholds, topk, torch.zeros(1 << each), 3)]
    assert taken == [*range(15, 23)]


def test_the_median_of_the_rounds_decides(thresholds, topk):
    thresholds.time_calls = lambda *calls: [(10, 100), (1, 100), (9000, 100), (10, 1), (10, 100)]
    assert loss(thresholds, topk, torch.zeros(1 << 14), 3) == ""
    thresholds.time_calls = lambda *calls: [(100, 10), (1, 100), (100, 9000), (100, 10), (100, 10)]
    assert loss(thresholds, topk, torch.zeros(1 << 14).double(), 3) == "PyTorch is faster"


def test_kinds_are_measured_once_and_kept_in_a_file(thresholds, topk, tmp_path):
    measured = clock(thresholds, set())
    x = torch.zeros(1 << 14)
    assert loss(thresholds, topk, x, 3) == "PyTorch is faster"
    once = len(measured)
    assert loss(thresholds, topk, x, 4) == "PyTorch is faster"
    assert len(measured) == once
    assert loss(thresholds, topk, x.double(), 3)
    assert len(measured) == 2 * once
    thresholds.won.clear()
    assert loss(thresholds, topk, x.double(), 3)
    assert len(measured) == 2 * once
    (path,) = tmp_path.iterdir()
    assert len(json.loads(path.read_text())) == 2
    thresholds.won.clear()
    path.write_text("[[1, 2]]")
    assert loss(thresholds, topk, x, 3)
    assert len(measured) == 3 * once


def test_process_that_is_first_decides_for_all(make_thresholds, thresholds, topk):
    x, first = torch.zeros(1 << 12), make_thresholds()
    clock(first, {1 << 12})
    clock(thresholds, {1 << 14})
    times = thresholds.time_calls

    def slow(mine, theirs):
        assert loss(first, topk, x, 3) == ""
        return times(mine, theirs)

    thresholds.time_calls = slow
    assert loss(thresholds, topk, x, 3) == ""
    assert thresholds.won == first.won


OBSTACLES = {
    "busy": {"is_busy": lambda: True},
    "forked": {"process": 0},
    "no folder": {"folder": lambda: None},
    "folder that cannot be written to": {"folder": lambda: __file__},
}


@pytest.mark.parametrize("obstacle", OBSTACLES)
def test_shipped_sizes_hold_where_no_measurement_can_be_made_or_kept(monkeypatch, thresholds, topk, tmp_path, obstacle):
    monkeypatch.setattr("dmlcpu.interop.torch.shipped.least", lambda name, kind, count: 1 << 15)
    measured = clock(thresholds, {1 << 14})
    with monkeypatch.context() as patch:
        for name, value in OBSTACLES[obstacle].items():
            patch.setattr(thresholds, name, value)
        taken = [not loss(thresholds, topk, torch.zeros(1 << power), 3) for power in (14, 15, 16, 22)]
        assert taken == [False, True, True, True]
        assert measured == [] or obstacle == "folder that cannot be written to"
        assert not [*tmp_path.glob("torch.*")]
    measured.clear()
    assert loss(thresholds, topk, torch.zeros(1 << 15), 3) == ""  # as long as the process lives
    assert measured == []
    thresholds.won.clear()
    assert loss(thresholds, topk, torch.zeros(1 << 14), 3) == ""
    assert measured


def test_shipped_table_can_leave_a_kind_to_pytorch(monkeypatch, thresholds, topk):
    thresholds.is_busy = lambda: True
    monkeypatch.setattr("dmlcpu.interop.torch.shipped.least", lambda name, kind, count: None)
    assert loss(thresholds, topk, torch.zeros(1 << 22), 3) == "PyTorch is faster"


def test_long_calls_and_memory_errors_end_a_measurement(thresholds, topk):
    sizes = []

    def times(mine, theirs):
        sizes.append(mine.args[1][0].numel())
        return [(1000, 20_000)]

    thresholds.time_calls = times
    assert loss(thresholds, topk, torch.zeros(1 << 17), 3) == ""  # larger than any that was measured
    assert sizes == [1 << 12] * 2

    def fail(mine, theirs):
        sizes.append(0)
        raise MemoryError

    thresholds.time_calls = fail
    for _ in range(3):
        assert loss(thresholds, topk, torch.zeros(1 << 17, dtype=torch.int64), 3) == "PyTorch is faster"
    assert sizes == [1 << 12, 1 << 12, 0, 0]


def test_disturbed_call_does_not_end_a_measurement(thresholds, topk):
    sizes = []

    def times(mine, theirs):
        sizes.append(mine.args[1][0].numel())
        return [(20_000, 30_000)] if len(sizes) == 1 else [(100, 10)]

    thresholds.time_calls = times
    assert loss(thresholds, topk, torch.zeros(1 << 14), 3) == "PyTorch is faster"
    assert sizes == [1 << 12, *topk.rungs]


@pytest.mark.parametrize(("has_vnni", "least"), [(True, 18), (False, 16)])
def test_a_reference_loop_is_replaced_from_smaller_sizes_on(thresholds, has_vnni, least):
    from dmlcpu.interop.torch.products import make_int_mm

    override, measured = make_int_mm(has_vnni), []

    def times(mine, theirs):
        measured.append(round(math.log2(override.size(mine.args[1][0], mine.args[1][1:]))))
        return [(100, 20_000)]  # so long that no larger size is measured

    thresholds.time_calls = times
    a = torch.zeros(1 << 6, 1 << 4, dtype=torch.int8)
    taken = []
    for power in (least - 1, least, 30):
        b = torch.zeros(1 << 4, 1, dtype=torch.int8).expand(-1, 1 << (power - 10))
        taken.append(not thresholds.loss(override, print, override.size(a, (b,)), a, b))
    assert taken == [False, True, True]
    assert measured == [least] * 2


def test_threads_wait_for_a_measurement(thresholds, topk):
    from dmlcpu.interop.torch.thresholds import is_measuring

    x, others = torch.zeros(1 << 14), []

    def times(mine, theirs):
        assert is_measuring()
        if not others:
            others.append(pool.submit(lambda: (is_measuring(), loss(thresholds, topk, x, 3))))
        return [(10, 100)]

    thresholds.time_calls = times
    with ThreadPoolExecutor(1) as pool:
        assert loss(thresholds, topk, x, 3) == ""
    assert [each.result()[1] for each in others] == [""]
    assert not is_measuring()


def test_measurement_that_fails_is_over(thresholds, topk):
    from dmlcpu.interop.torch.thresholds import is_measuring

    thresholds.time_calls = lambda *calls: 1 / 0
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            loss(thresholds, topk, torch.zeros(1 << 14), 3)
        assert not is_measuring()


def test_report_counts_no_calls_of_measurements(thresholds, torch_overrides):
    """PyTorch's index_add_ of rows calls scatter_add_."""
    from dmlcpu.interop.torch.switches import _SWITCHES

    torch_overrides.enable()
    override = _SWITCHES["index_add_"].override._replace(rungs=(1 << 12,))
    original = torch.library.get_kernel(override.operator, "CPU").call_boxed
    before = torch_overrides.report()
    args = override.sample(("float32", "rows"), 1 << 12)
    thresholds.loss(override, original, 1 << 12, *args)
    assert [*thresholds.won.values()]
    assert torch_overrides.report() == before
    torch.zeros(64, 64).scatter_add_(0, torch.zeros(64, 64, dtype=torch.int64), torch.zeros(64, 64))
    assert torch_overrides.report() != before


def test_samples_have_the_measured_kind_and_size():
    from dmlcpu.interop.torch.switches import _SWITCHES

    along, rows = ("one row", "rows", "short rows", "strided"), ("elements", "short rows", "rows", "long rows")
    kinds = {
        **{name: [*itertools.product(["float32"], along, ("few", "many"))] for name in ("topk", "kthvalue")},
        **{
            name: [*itertools.product(["float32"], along)]
            for name in ("sort", "median", "nanmedian", "argmax", "argmin")
        },
        "index_put_": itertools.product(["int64"], rows, ("one index", "several indices"), ("add", "assign")),
        "unique": [("int64", "values")],
        "_int_mm": itertools.product(("one", "few", "many"), ("rows", "columns")),
        "index_add_": itertools.product(["float32"], (*rows, "lines")),
        "gather": itertools.product(["float32"], ("elements", "columns", "lines")),
    }
    for each in [switch.override for switch in _SWITCHES.values()]:
        for kind in kinds.get(each.name, itertools.product(["float32"], (*rows, "columns", "lines"))):
            for size in each.rungs[:3]:
                args = each.sample(kind, size)
                assert each.size(args[0], args[1:]) == pytest.approx(size, rel=0.1), (each.name, kind)
                assert each.size(args[0], args[1:]) >= each.least, (each.name, kind)
                assert each.refusal(*args) == "", (each.name, kind)
                assert each.kind(*args) == kind or size < 1 << 14, (each.name, kind)


@pytest.mark.parametrize(("rows", "expected"), [(1, "one"), (2, "one"), (3, "few"), (8, "few"), (9, "many")])
def test_kinds_of_int_mm(rows, expected):
    from dmlcpu.interop.torch.products import INT_MM

    a, b = torch.zeros(rows, 16, dtype=torch.int8), torch.zeros(16, 32, dtype=torch.int8)
    assert INT_MM.kind(a, b) == (expected, "rows")
    assert INT_MM.kind(a, b.T.contiguous().T) == (expected, "columns")


def test_the_measurement_takes_turns():
    from dmlcpu.interop.torch.thresholds import LEAST_ROUNDS, time_in_turns

    calls = []
    rounds = time_in_turns(lambda: calls.append(0), lambda: calls.append(1))
    assert all(ours > 0 and theirs > 0 for ours, theirs in rounds)
    assert len(rounds) >= LEAST_ROUNDS
    turns = sum(one != other for one, other in itertools.pairwise(calls))
    assert turns >= 2 * LEAST_ROUNDS
