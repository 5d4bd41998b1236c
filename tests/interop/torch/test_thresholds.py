"""From which size on calls are taken."""

import json

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


def clock(monkeypatch, thresholds, won):
    """Let us be faster at these sizes only; list what is measured."""
    measured = []

    def times(mine, theirs):
        size = mine.args[1][0].numel()
        measured.append(size)
        return (10, 100) if size in won else (100, 10)

    monkeypatch.setattr(thresholds, "_times", times)
    return measured


def test_what_lies_between_two_sizes_is_taken_if_both_are_won(monkeypatch, thresholds, topk):
    measured = clock(monkeypatch, thresholds, {1 << 14, 1 << 16, 1 << 20})
    taken = [size for size in (4096, 5000, 16384, 20000, 65536, 70000, 1 << 20, 1 << 21)
             if not thresholds.loss(topk, print, torch.zeros(size), 3)]  # fmt: skip
    assert taken == [16384, 20000, 65536, 1 << 20, 1 << 21]
    assert measured == [1 << power for power in range(12, 21, 2)]


def test_kinds_are_measured_once_and_kept_in_a_file(monkeypatch, thresholds, topk, tmp_path):
    measured = clock(monkeypatch, thresholds, set())
    x = torch.zeros(1 << 14)
    assert thresholds.loss(topk, print, x, 3) == "PyTorch is faster"
    once = len(measured)
    assert thresholds.loss(topk, print, x, 4) == "PyTorch is faster"
    assert len(measured) == once
    assert thresholds.loss(topk, print, x.double(), 3)
    assert len(measured) == 2 * once
    thresholds._won.clear()
    assert thresholds.loss(topk, print, x.double(), 3)
    assert len(measured) == 2 * once
    (path,) = tmp_path.iterdir()
    assert len(json.loads(path.read_text())) == 2
    thresholds._won.clear()
    path.write_text("[[1, 2]]")
    assert thresholds.loss(topk, print, x, 3)
    assert len(measured) == 3 * once


def test_what_is_measured_on_a_busy_machine_is_not_kept(monkeypatch, thresholds, topk, tmp_path):
    monkeypatch.setattr(thresholds, "_is_busy", lambda: True)
    clock(monkeypatch, thresholds, {1 << 14})
    assert thresholds.loss(topk, print, torch.zeros(1 << 14), 3) == ""
    assert list(tmp_path.iterdir()) == []


def test_without_a_folder_it_is_measured_by_each_process(monkeypatch, thresholds, topk):
    monkeypatch.setattr(thresholds, "_folder", lambda: None)
    clock(monkeypatch, thresholds, {1 << 14})
    assert thresholds.loss(topk, print, torch.zeros(1 << 14), 3) == ""


def test_a_call_within_a_measurement_is_passed_on(monkeypatch, thresholds, topk):
    inner = []
    x = torch.zeros(1 << 14)

    def times(mine, theirs):
        inner.append(thresholds.loss(topk, print, x, 3))
        return 10, 100

    monkeypatch.setattr(thresholds, "_times", times)
    assert thresholds.loss(topk, print, x, 3) == ""
    assert set(inner) == {"within a measurement"}


def test_samples_are_of_the_kind_and_size_that_is_measured():
    from dmlcpu.interop.torch import override, overrides

    kinds = {
        "topk": [("torch.float32", form, count) for form in ("one row", "rows", "short rows", "columns")
                 for count in ("few", "many")],
        "index_put_": [("torch.int64", form, index, action) for form in ("elements", "short rows", "rows", "long rows")
                       for index in ("one index", "several indices") for action in ("add", "assign")],
        "_int_mm": [(count, order) for count in ("few", "many") for order in ("rows", "columns")],
    }  # fmt: skip
    rows = [("torch.float16", form) for form in ("elements", "short rows", "rows", "long rows")]
    for each in overrides.OVERRIDES:
        for kind in kinds.get(each.name, rows):
            for size in each.rungs[:3]:
                args = each.sample(kind, size)
                assert each.refusal(*args) == "", (each.name, kind)
                found, measured = each.kind(*args)
                assert measured == pytest.approx(size, rel=0.1), (each.name, kind)
                assert found == kind or size < 1 << 14, (each.name, kind, found)
    assert min(min(each.rungs) for each in overrides.OVERRIDES) >= override.LEAST_ELEMENTS


def test_the_measurement_itself(thresholds, topk):
    ours, theirs = thresholds._times(lambda: None, lambda: sum(range(2000)))
    assert 0 < ours < theirs
