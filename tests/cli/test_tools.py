import json

from cli_calls import Run

import dmlcpu
from dmlcpu.operators import OPERATORS


def test_names_that_warmup_does_not_know(run: Run) -> None:
    code, _, err = run("warmup", "--ops", "top_k", "gemm")
    assert code == 2
    for part in ("argument --ops: invalid choice: 'gemm'", *OPERATORS):
        assert part in err[-1]
    code, _, err = run("warmup", "--types", "float8")
    assert code == 2
    for part in ("argument --types: invalid choice: 'float8'", *OPERATORS["top_k"].types):
        assert part in err[-1]


def test_types_that_the_operator_does_not_have(run: Run) -> None:
    assert run("warmup", "--ops", "quantized_matmul", "--types", "float32") == (
        2,
        [],
        ["dmlcpu: none of these operators has these types; allowed: quantized_matmul: int8, uint8"],
    )


def test_warmup(run: Run) -> None:
    code, out, err = run("warmup", "--ops", "top_k", "--types", "uint32")
    assert (code, err) == (0, [])  # no bar: stderr is no terminal
    (line,) = out
    assert line.startswith("compiled ")


def test_info(run: Run) -> None:
    code, out, err = run("info")
    assert (code, err) == (0, [])
    assert out[0] == "versions"
    assert "kernels" in out


def test_info_json(run: Run) -> None:
    code, out, err = run("info", "--json")
    assert (code, err) == (0, [])
    assert json.loads("\n".join(out))["versions"]["dmlcpu"] == dmlcpu.__version__
