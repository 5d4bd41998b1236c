"""The sizes from which calls are taken."""

import itertools
import json
import math

import pytest

torch = pytest.importorskip("torch")


@pytest.fixture
def thresholds(torch_overrides, monkeypatch, tmp_path):
    from dmlcpu.interop.torch import thresholds

    monkeypatch.setattr(thresholds, "_folder", lambda: str(tmp_path))
    monkeypatch.setattr(thresholds, "_won", {})
    monkeypatch.setattr(thresholds, "_is_busy", lambda: False)
    return thresholds


@pytest.fixture
def topk():
    from dmlcpu.interop.torch.topk import TOPK

    return TOPK


def loss(thresholds, topk, x, k):
    return thresholds.loss(topk, print, topk.size(x, (k,)), x, k)


def clock(monkeypatch, thresholds, won):
    """Make dmlcpu faster only at the sizes of `won`; list the sizes measured."""
    measured = []

    def times(mine, theirs):
        size = mine.args[1][0].numel()
        measured.append(size)
        return (10, 100) if size in won else (100, 10)

    monkeypatch.setattr(thresholds, "_times", times)
    return measured


def test_size_between_two_winning_sizes_is_taken(monkeypatch, thresholds, topk):
    measured = clock(monkeypatch, thresholds, {1 << 14, 1 << 15, 1 << 16, 1 << 20})
    taken = [size for size in (4096, 5000, 16384, 20000, 65536, 70000, 1 << 20, 1 << 21)
             if not loss(thresholds, topk, torch.zeros(size), 3)]  # fmt: skip
    assert taken == [16384, 20000, 65536, 1 << 20, 1 << 21]
    assert measured == [1 << power for power in range(12, 21)]


def test_kinds_are_measured_once_and_kept_in_a_file(monkeypatch, thresholds, topk, tmp_path):
    measured = clock(monkeypatch, thresholds, set())
    x = torch.zeros(1 << 14)
    assert loss(thresholds, topk, x, 3) == "PyTorch is faster"
    once = len(measured)
    assert loss(thresholds, topk, x, 4) == "PyTorch is faster"
    assert len(measured) == once
    assert loss(thresholds, topk, x.double(), 3)
    assert len(measured) == 2 * once
    thresholds._won.clear()
    assert loss(thresholds, topk, x.double(), 3)
    assert len(measured) == 2 * once
    (path,) = tmp_path.iterdir()
    assert len(json.loads(path.read_text())) == 2
    thresholds._won.clear()
    path.write_text("[[1, 2]]")
    assert loss(thresholds, topk, x, 3)
    assert len(measured) == 3 * once


def test_measurement_on_a_busy_machine_is_not_kept(monkeypatch, thresholds, topk, tmp_path):
    monkeypatch.setattr(thresholds, "_is_busy", lambda: True)
    clock(monkeypatch, thresholds, {1 << 14})
    assert loss(thresholds, topk, torch.zeros(1 << 14), 3) == ""
    assert list(tmp_path.iterdir()) == []


def test_without_a_folder_it_is_measured_by_each_process(monkeypatch, thresholds, topk):
    monkeypatch.setattr(thresholds, "_folder", lambda: None)
    clock(monkeypatch, thresholds, {1 << 14})
    assert loss(thresholds, topk, torch.zeros(1 << 14), 3) == ""


def test_long_calls_and_memory_errors_end_a_measurement(monkeypatch, thresholds, topk):
    sizes = []

    def times(mine, theirs):
        sizes.append(mine.args[1][0].numel())
        return 1000, 20_000

    monkeypatch.setattr(thresholds, "_times", times)
    assert loss(thresholds, topk, torch.zeros(1 << 17), 3) == ""  # larger than any that was measured
    assert sizes == [1 << 12]

    def fail(mine, theirs):
        sizes.append(0)
        raise MemoryError

    monkeypatch.setattr(thresholds, "_times", fail)
    for _ in range(3):
        assert loss(thresholds, topk, torch.zeros(1 << 17, dtype=torch.int64), 3) == "PyTorch is faster"
    assert sizes == [1 << 12, 0]


@pytest.mark.parametrize(("has_vnni", "least"), [(True, 18), (False, 16)])
def test_a_reference_loop_is_replaced_from_smaller_sizes_on(monkeypatch, thresholds, has_vnni, least):
    from dmlcpu.interop.torch.products import make_int_mm

    override, measured = make_int_mm(has_vnni), []

    def times(mine, theirs):
        measured.append(round(math.log2(override.size(mine.args[1][0], mine.args[1][1:]))))
        return 100, 20_000  # so long that no larger size is measured

    monkeypatch.setattr(thresholds, "_times", times)
    a = torch.zeros(1 << 6, 1 << 4, dtype=torch.int8)
    taken = []
    for power in (least - 1, least, 30):
        b = torch.zeros(1 << 4, 1, dtype=torch.int8).expand(-1, 1 << (power - 10))
        taken.append(not thresholds.loss(override, print, override.size(a, (b,)), a, b))
    assert taken == [False, True, True]
    assert measured == [least]


def test_a_folder_that_cannot_be_written_to(monkeypatch, thresholds, topk, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setattr(thresholds, "_folder", lambda: str(tmp_path / "file"))
    clock(monkeypatch, thresholds, {1 << 14})
    assert loss(thresholds, topk, torch.zeros(1 << 14), 3) == ""


def test_a_call_within_a_measurement_is_passed_on(monkeypatch, thresholds, topk):
    inner = []
    x = torch.zeros(1 << 14)

    def times(mine, theirs):
        inner.append(loss(thresholds, topk, x, 3))
        return 10, 100

    monkeypatch.setattr(thresholds, "_times", times)
    assert loss(thresholds, topk, x, 3) == ""
    assert set(inner) == {"within a measurement"}


def test_samples_have_the_measured_kind_and_size():
    from dmlcpu.interop.torch.switches import _SWITCHES

    topk_forms, forms = ("one row", "rows", "short rows", "strided"), ("elements", "short rows", "rows", "long rows")
    kinds = {
        "topk": itertools.product(["float32"], topk_forms, ("few", "many")),
        "index_put_": itertools.product(["int64"], forms, ("one index", "several indices"), ("add", "assign")),
        "_int_mm": itertools.product(("one", "few", "many"), ("rows", "columns")),
    }
    for each in [switch.override for switch in _SWITCHES.values()]:
        for kind in kinds.get(each.name, itertools.product(["float32"], forms)):
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


def test_the_measurement_takes_turns(thresholds):
    calls = []
    ours, theirs = thresholds._times(lambda: calls.append(0), lambda: calls.append(1))
    assert ours > 0
    assert theirs > 0
    turns = sum(one != other for one, other in itertools.pairwise(calls))
    assert turns >= 2 * thresholds._ROUNDS[0]
