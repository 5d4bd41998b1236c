"""The sizes that hold where none are measured."""

import itertools

import pytest

pytest.importorskip("torch")

ALONG = ("one row", "rows", "short rows", "strided")
ROWS = ("elements", "short rows", "rows", "long rows")
SCATTERS = ("scatter_add_", "scatter_add", "scatter_", "scatter", "scatter_reduce_", "scatter_reduce")
FORMS = {
    **{name: itertools.product(ALONG, ("few", "many")) for name in ("topk", "kthvalue")},
    **{name: itertools.product(ALONG) for name in ("sort", "median", "nanmedian", "argmax", "argmin")},
    "unique": itertools.product(("values",)),
    "_int_mm": itertools.product(("one", "few", "many"), ("rows", "columns")),
    "index_put_": itertools.product(ROWS, ("one index", "several indices"), ("add", "assign")),
    "index_add_": itertools.product((*ROWS, "lines")),
    **{name: itertools.product((*ROWS, "columns", "lines")) for name in SCATTERS},
    "gather": itertools.product(("elements", "columns", "lines")),
}


@pytest.fixture
def shipped():
    from dmlcpu.interop.torch import shipped

    return shipped


def test_table_has_every_kind_of_every_operator(shipped):
    from dmlcpu.interop.torch.switches import _SWITCHES

    assert {name: {*rows} for name, rows in shipped.TABLE.items()} == {name: {*rows} for name, rows in FORMS.items()}
    assert set(_SWITCHES) == set(shipped.TABLE)
    for name, rows in shipped.TABLE.items():
        override = _SWITCHES[name].override
        for size in itertools.chain(*rows.values()):
            assert size is None or size >= override.least


def rows_of(shipped):
    return [(name, kind, sizes) for name, rows in shipped.TABLE.items() for kind, sizes in rows.items()]


def test_size_depends_on_operator_form_and_threads_but_on_no_type(monkeypatch, shipped):
    from dmlcpu.runtime.isa import Isa

    monkeypatch.setattr(shipped, "allowed", lambda: {Isa.GENERIC, Isa.AVX2, Isa.AVXVNNI, Isa.AVX512VNNI})
    for name, kind, sizes in rows_of(shipped):
        for dtype in ("float32", "bfloat16"):
            assert tuple(shipped.least(name, (dtype, *kind), count) for count in (1, 2)) == sizes


@pytest.mark.parametrize("isa", ["GENERIC", "AVX2", "AVXVNNI", "AVX512VNNI", "AMX", "I8MM"])
@pytest.mark.parametrize("threads", [1, 2, 3, 64])
def test_elsewhere_larger_sizes_hold(monkeypatch, shipped, isa, threads):
    from dmlcpu.runtime.isa import Isa

    monkeypatch.setattr(shipped, "allowed", lambda: {Isa.GENERIC, Isa[isa]})
    is_measured = isa == "AVX512VNNI" and threads <= 2
    for name, kind, sizes in rows_of(shipped):
        elsewhere = None if None in sizes else 4 * max(sizes)
        assert shipped.least(name, ("float32", *kind), threads) == (sizes[threads - 1] if is_measured else elsewhere)
