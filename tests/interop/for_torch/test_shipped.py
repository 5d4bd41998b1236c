"""The sizes that hold where none are measured."""

import itertools

import pytest

pytest.importorskip("torch")

ROWS = ("elements", "short rows", "rows", "long rows")
FORMS = {
    "topk": itertools.product(("one row", "rows", "short rows", "strided"), ("few", "many")),
    "_int_mm": itertools.product(("one", "few", "many"), ("rows", "columns")),
    "index_put_": itertools.product(ROWS, ("one index", "several indices"), ("add", "assign")),
    **{name: itertools.product(ROWS) for name in ("index_add_", "scatter_add_", "scatter_")},
}


@pytest.fixture
def shipped():
    from dmlcpu.interop.torch import shipped

    return shipped


def test_table_has_every_kind_of_every_operator(shipped):
    from dmlcpu.interop.torch.switches import _SWITCHES

    assert {name: {*rows} for name, rows in shipped._TABLE.items()} == {name: {*rows} for name, rows in FORMS.items()}
    assert set(_SWITCHES) == set(shipped._TABLE)
    for name, rows in shipped._TABLE.items():
        override = _SWITCHES[name].override
        for size in itertools.chain(*rows.values()):
            assert size is None or size >= override.least


def test_size_depends_on_operator_form_and_threads_but_on_no_type(monkeypatch, shipped):
    from dmlcpu.runtime.isa import Isa

    monkeypatch.setattr(shipped, "allowed", lambda: {Isa.GENERIC, Isa.AVX2, Isa.AVXVNNI, Isa.AVX512VNNI})
    monkeypatch.setattr(shipped, "_TABLE", {"topk": {("rows", "few"): (10, 20), ("rows", "many"): (None, 30)}})
    for dtype in ("float32", "bfloat16"):
        assert [shipped.least("topk", (dtype, "rows", "few"), count) for count in (1, 2)] == [10, 20]
        assert [shipped.least("topk", (dtype, "rows", "many"), count) for count in (1, 2)] == [None, 30]


@pytest.mark.parametrize("isa", ["GENERIC", "AVX2", "AVXVNNI", "AVX512VNNI", "AMX", "I8MM"])
@pytest.mark.parametrize("threads", [1, 2, 3, 64])
def test_elsewhere_larger_sizes_hold(monkeypatch, shipped, isa, threads):
    from dmlcpu.runtime.isa import Isa

    monkeypatch.setattr(shipped, "allowed", lambda: {Isa.GENERIC, Isa[isa]})
    monkeypatch.setattr(shipped, "_TABLE", {"topk": {("rows", "few"): (20, 10), ("rows", "many"): (None, 10)}})
    is_measured = isa == "AVX512VNNI" and threads <= 2
    few, many = (shipped.least("topk", ("float32", "rows", count), threads) for count in ("few", "many"))
    assert (few, many) == ((20, 10)[threads - 1] if is_measured else 80, 10 if is_measured and threads == 2 else None)
