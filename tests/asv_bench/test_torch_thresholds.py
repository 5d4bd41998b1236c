"""The script that prints the table of shipped sizes."""

import ast
import sys

import pytest
from asv_files import load

torch = pytest.importorskip("torch")


@pytest.fixture
def table(monkeypatch, capsys):
    """Run the script where kinds win at the sizes that a function gives; return its table."""
    from dmlcpu.interop.torch import shipped
    from dmlcpu.interop.torch.thresholds import Thresholds

    def run(won, *options):
        monkeypatch.setattr(Thresholds, "measure", lambda self, override, original, kind: won(kind))
        monkeypatch.setattr(sys, "argv", ["torch_thresholds.py", *options])
        load("torch_thresholds").main()
        found = ast.literal_eval("{" + capsys.readouterr().out + "}")
        assert all(set(rows) == set(shipped.TABLE[name]) for name, rows in found.items())
        return found

    before = torch.get_num_threads()
    yield run
    torch.set_num_threads(before)


def test_size_is_that_of_the_slowest_type_from_which_all_larger_ones_win(table):
    def won(kind):
        if kind[1] == "strided" and torch.get_num_threads() == 2:
            return {1: True, 2: True, 4: kind[0] != "int64"}
        return {1: True, 2: kind[0] != "int8", 4: True}

    rows = table(won, "--operators", "topk", "--types", "float32", "int64", "int8")["topk"]
    assert rows["rows", "few"] == (4, 4)
    assert rows["strided", "many"] == (4, None)
    assert table(won, "--operators", "topk", "--types", "float32", "--threads", "1")["topk"]["rows", "few"] == 1


def test_types_that_an_operator_refuses_do_not_count(table):
    rows = table(lambda kind: {8: "bfloat16" not in kind}, "--operators", "_int_mm", "index_add_", "scatter_")
    assert set(rows["_int_mm"].values()) == set(rows["index_add_"].values()) == {(8, 8)}
    assert set(rows["scatter_"].values()) == {(None, None)}
