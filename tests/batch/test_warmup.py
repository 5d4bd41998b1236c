import re
import sys
from collections.abc import Callable

import numpy as np
import pytest

import dmlcpu
from dmlcpu.batch import warmup
from dmlcpu.batch.faults import MissingExtraError
from dmlcpu.config import cache_folder
from dmlcpu.kernels import registry
from dmlcpu.runtime.threads import get_num_threads, limits


def test_chosen() -> None:
    assert warmup.chosen(["top_k", "quantized_matmul"], ["int8", "float32"]) == [
        ("top_k", "int8"),
        ("top_k", "float32"),
        ("quantized_matmul", "int8"),
    ]
    assert warmup.chosen(["quantized_matmul"], ["float32"]) == []


def test_the_table_of_types_is_what_the_operators_take() -> None:
    """Each type by a call; bfloat16 is warmed up by float16, so that it needs no ml_dtypes."""
    for name in warmup.TYPES["top_k"]:
        if name != "bfloat16":
            assert dmlcpu.top_k(np.zeros(2, name), 1).values.dtype == name
    assert set(warmup.TYPES["scatter_nd"]) == set(warmup.TYPES["top_k"])
    assert set(warmup._CALLS) == set(warmup.TYPES)
    no_operator_yet = {"matmul_integer"}
    assert {entry.operator for entry in registry.KERNELS} - no_operator_yet == set(warmup.TYPES)


def test_warm_up_tells_what_it_did() -> None:
    before = get_num_threads()
    text = warmup.warm_up([("top_k", "int16")])
    assert re.fullmatch(r"compiled \d+ kernels in \d+\.\d s, \d+ were in the cache already: .*", text)
    assert text.endswith(f": {cache_folder()}")
    assert get_num_threads() == before
    # What is compiled stays so: the same again has nothing to do.
    again = warmup.warm_up([("top_k", "int16"), ("top_k", "uint16"), ("top_k", "bfloat16")])
    assert re.fullmatch(r"compiled 0 kernels in \d+\.\d s, 0 were in the cache already: .*", again)


def call_top_k() -> None:
    x = np.zeros((50, 30, 40), np.int16)
    for k in (1, 7, 30):
        dmlcpu.top_k(x, k, axis=1)
    dmlcpu.top_k(x[::2, ::-1].T, 3, largest=False, index_dtype=np.uint32)


def call_scatter_nd() -> None:
    x = np.zeros((50, 30, 40), np.int16)
    for reduction in ("none", "add", "mul", "min", "max"):
        dmlcpu.scatter_nd(x, [[0, 1], [2, 3]], np.zeros((2, 40), np.int16), reduction=reduction)
    for index_type in (np.int8, np.int32, np.uint32, np.uint64):
        dmlcpu.scatter_nd(x.T, np.array([[5]], index_type), np.zeros((1, 30, 50), np.int16), mode="clip")


def call_quantized_matmul() -> None:
    a, b = np.zeros((3, 70, 50), np.int8), np.zeros((50, 90), np.uint8)
    dmlcpu.quantized_matmul(a, 1.0, None, b, np.ones(90), 3, 1.0, 5)
    dmlcpu.quantized_matmul(a, 1.0, None, dmlcpu.pack_b(b.view(np.int8)), 1.0, None, 1.0, None, out_dtype=np.uint8)


@pytest.mark.parametrize(
    ("op", "name", "call"),
    [
        ("top_k", "int16", call_top_k),
        ("scatter_nd", "int16", call_scatter_nd),
        ("quantized_matmul", "int8", call_quantized_matmul),
    ],
)
def test_nothing_is_left_to_compile(op: str, name: str, call: Callable[[], None]) -> None:
    warmup.warm_up([(op, name)])
    before = warmup._counts()
    with limits(1):
        call()
    with limits(3, grain=1):
        call()
    assert warmup._counts() == before


def test_names_the_missing_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tqdm", None)
    with pytest.raises(MissingExtraError, match=r"needs the package tqdm: pip install 'dmlcpu\[cli\]'"):
        warmup.warm_up([("top_k", "int16")])
