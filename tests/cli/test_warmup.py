import re
import sys
from pathlib import Path

import numpy as np
import pytest
from cli_calls import Run
from processes import run_each

import dmlcpu
from dmlcpu.cli import warmup
from dmlcpu.common.imports import MissingExtraError
from dmlcpu.config import cache_folder
from dmlcpu.operators import OPERATORS
from dmlcpu.runtime import kept_calls
from dmlcpu.runtime.threads import get_num_threads

TESTS = Path(__file__).parents[1]


def test_only_types_that_the_operator_has_are_chosen() -> None:
    assert warmup.chosen(["top_k", "quantized_matmul"], ["int8", "float32"]) == [
        ("top_k", "int8"),
        ("top_k", "float32"),
        ("quantized_matmul", "int8"),
    ]
    assert warmup.chosen(["quantized_matmul"], ["float32"]) == []


def test_warm_up_counts_compiled_and_cached_kernels() -> None:
    before = get_num_threads()
    text = warmup.warm_up([("top_k", "int16")])
    assert re.fullmatch(r"compiled \d+ kernels in \d+\.\d s, \d+ were in the cache already: .*", text)
    assert text.endswith(f": {cache_folder()}")
    assert get_num_threads() == before
    # Compiled code is kept: a second call has nothing to do.
    again = warmup.warm_up([("top_k", "int16"), ("top_k", "uint16"), ("top_k", "bfloat16")])
    assert re.fullmatch(r"compiled 0 kernels in \d+\.\d s, 0 were in the cache already: .*", again)


def test_kept_calls_are_compiled_too() -> None:
    warmup.warm_up([("top_k", "int16")])
    compiled = [kept_calls._compiled(function) for function in (kept_calls._keep, kept_calls._call)]
    before = [each.signatures.copy() for each in compiled]
    assert all(before)
    dmlcpu.bind(dmlcpu.top_k, np.ones(9, np.uint16), 2)()
    assert [each.signatures for each in compiled] == before


def test_kept_calls_that_look_at_scales_are_compiled_too() -> None:
    warmup.warm_up([("quantized_matmul", "uint8")])
    compiled = [kept_calls._compiled(function) for function in (kept_calls._keep, kept_calls._call_if)]
    before = [each.signatures.copy() for each in compiled]
    assert all(before)
    a, scales = np.ones((5, 7), np.uint8), np.ones(9, np.float32)
    dmlcpu.bind(dmlcpu.quantized_matmul, a, 1.0, 0, np.ones((7, 9), np.int8), scales, 0, 1.0, 0)()
    assert [each.signatures for each in compiled] == before


def test_unknown_names_are_refused_with_the_known_ones(run: Run) -> None:
    code, _, err = run("warmup", "--ops", "top_k", "gemm")
    assert code == 2
    for part in ("argument --ops: 'gemm'; allowed: ", *OPERATORS):
        assert part in err[-1]
    code, _, err = run("warmup", "--types", "float8")
    assert code == 2
    for part in ("argument --types: 'float8' (did you mean 'float64'?); allowed: ", *OPERATORS["top_k"].types):
        assert part in err[-1]


def test_types_that_no_chosen_operator_has_are_refused(run: Run) -> None:
    assert run("warmup", "--ops", "quantized_matmul", "--types", "float32") == (
        2,
        [],
        ["dmlcpu: none of these operators has these types; allowed: quantized_matmul: int8, uint8"],
    )


def test_the_command_prints_one_line(run: Run) -> None:
    code, out, err = run("warmup", "--ops", "top_k", "--types", "uint32")
    assert (code, err) == (0, [])  # no bar: stderr is no terminal
    (line,) = out
    assert line.startswith("compiled ")


IMPORTS = """
import itertools
import numpy as np
from conformance.random_calls import maker
from dmlcpu.cli import warmup
from dmlcpu.common.forms import Form
from dmlcpu.operators import OPERATORS
from dmlcpu.operators.top_k.call import INT64, Call
from dmlcpu.operators.top_k.search import Search
from dmlcpu.runtime.threads import use_budget
warmup._counts()  # makes all kernels and compiles none; each process would take longer for that than for calls
"""
LEFT_TO_COMPILE = """
warmup.warm_up([(OPERATOR, TYPE)])
before = warmup._counts()
for threads in (1, 3):
    with use_budget(threads, grain=1):
        for example in OPERATORS[OPERATOR].examples(TYPE):  # some are made by other functions of the package
            if example.kernel is None:
                OPERATORS[OPERATOR].function(**example.arguments)
calls = (maker(OPERATOR)(np.random.default_rng(seed)) for seed in range(4_000))
mine = (call for call in calls if isinstance(call.first, np.ndarray) and call.first.dtype.name == TYPE)
for call in itertools.islice(mine, 50):
    for threads in (1, 3):
        with use_budget(threads, grain=1):
            call.run()
if OPERATOR == "top_k":
    for threads in (1, 3):
        with use_budget(threads, grain=1):
            x = np.ones((90, 500), TYPE)
            search = Search(Call(Form(x.shape, x.dtype), 2, 0, INT64, largest=True))
            for start in (0, 30, 60):
                search.look_at(x[start : start + 30], start)
            search.winners()
assert warmup._counts() == before, (OPERATOR, TYPE, warmup._counts(), before)
"""


PAIRS = warmup.chosen(list(OPERATORS), ["int8", "float64"])


@pytest.mark.parametrize("pairs", [PAIRS[::2], pytest.param(PAIRS[1::2], marks=pytest.mark.slow)], ids=["even", "odd"])
def test_nothing_is_left_to_compile(pairs: list[tuple[str, str]]) -> None:
    """Calls of a type, in other layouts and directions than the examples that warm it up.

    In processes that have compiled nothing else.
    """
    codes = [f"OPERATOR, TYPE = {op!r}, {name!r}\n{LEFT_TO_COMPILE}" for op, name in pairs]
    run_each(codes, IMPORTS, PYTHONPATH=str(TESTS))


def test_nothing_is_compiled_if_it_cannot_be_kept(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dmlcpu.config.cache_folder", lambda: "none: no folder can be written to")
    monkeypatch.setattr(warmup, "warm_up", lambda _: pytest.fail("it compiles"))
    message = "no folder can be written to. Set NUMBA_CACHE_DIR to a folder that can be written to"
    assert run("warmup") == (1, [], [f"dmlcpu: compiled kernels would be lost: {message}"])


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tqdm", None)
    with pytest.raises(
        MissingExtraError, match=r"needs the package tqdm: pip install '\.\[cli\]' in a clone of dmlcpu"
    ):
        warmup.warm_up([("top_k", "int16")])
