"""NUMBA_DISABLE_JIT=1: the reference gives the same results and refusals as compiled kernels.

Most tests run code without compilation, in a fork of a process, and with it, in their own, and compare the output.
"""

import contextlib
import io
import json
import os
import re
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from processes import forks_of, run

from dmlcpu.operators import OPERATORS

ROOT = Path(__file__).parents[2]
MODEL = ROOT / "examples" / "digits" / "neighbours.json"
_PATH = os.pathsep.join(map(str, (ROOT, ROOT / "tests", ROOT / "tests" / "conformance")))

SHOW = """
import contextlib
import hashlib
import pickle
import numba
import numpy as np
import dmlcpu
import dmlcpu.cli
from dmlcpu import reference

rng = np.random.default_rng(11)

def show(*arrays):
    for array in arrays:
        print(array.dtype, array.shape, hashlib.sha256(array.tobytes()).hexdigest()[:16])

def refused(function, *args, outputs, **kwargs):
    before = [output.tobytes() for output in outputs]
    try:
        function(*args, **kwargs)
    except (dmlcpu.DmlError, TypeError) as error:
        print(f"{type(error).__name__}: {error}")
    else:
        raise AssertionError("was not refused")
    assert [output.tobytes() for output in outputs] == before
"""
Way = Callable[[str], str]  # runs code, and returns its output


@pytest.fixture(scope="module")
def plain() -> Iterator[Way]:
    imports = "for name in dmlcpu.__all__: getattr(dmlcpu, name)\n"
    with forks_of(SHOW + imports, NUMBA_DISABLE_JIT="1", PYTHONPATH=_PATH) as run_fork:
        yield run_fork


def compiled(code: str) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(SHOW + textwrap.dedent(code), {"__name__": "compiled"})
    return printed.getvalue()


def same(plain: Way, code: str) -> list[str]:
    """Run code both ways; return the output, which is the same."""
    printed = plain(code)
    assert printed == compiled(code)
    return printed.splitlines()


@pytest.mark.parametrize(("first", "calls"), [(0, 150), pytest.param(150, 250, marks=pytest.mark.slow)])
def test_random_calls_equal_the_reference(plain: Way, first: int, calls: int) -> None:
    """All types, layouts, outputs (given ones, and in place), reductions and modes."""
    seeds = f"range({3_000_000 + first}, {3_000_000 + first + calls})"
    code = f"from random_calls import check_call\nprint(*sorted({{check_call(seed) for seed in {seeds}}}))"
    assert plain(code).split() == sorted(OPERATORS)


def test_outputs_are_the_arrays_that_are_given(plain: Way) -> None:
    code = """
    x = rng.integers(-3, 4, (4, 30)).astype(np.float32)
    out = np.empty((4, 12), x.dtype)[:, ::2], np.empty((6, 4), np.uint32).T
    found = dmlcpu.top_k(x, 6, largest=False, index_dtype=np.uint32, out=out)
    assert type(found) is dmlcpu.TopK and found.values is out[0] and found.indices is out[1]
    show(*out)
    values, indices = dmlcpu.top_k(x, 20, sorted=False)
    assert (np.take_along_axis(x, indices, axis=-1) == values).all()
    show(np.sort(values), np.sort(indices))

    bins = np.zeros((3, 2))
    assert dmlcpu.scatter_nd(bins, [[0], [2], [2]], np.ones((3, 2)), reduction="add", out=bins) is bins
    show(bins)
    apart = np.full((2, 3), 9.0).T
    assert dmlcpu.scatter_nd(bins, [[-1, 0]], [5.0], out=apart) is apart
    show(apart, bins)

    a, b = rng.integers(0, 256, (2, 4, 9)).astype(np.uint8), rng.integers(-128, 128, (9, 5)).astype(np.int8)
    out = np.full((2, 4, 10), 7, np.int8)
    view = out[..., ::2]
    assert dmlcpu.quantized_matmul(a, 0.1, 7, b, [0.1] * 5, None, 3.0, 1, out_dtype=np.int8, out=view) is view
    show(out)
    show(dmlcpu.quantized_matmul(a[0, 0], 0.1, 7, b, 0.1, None, 3.0, 1))
    show(dmlcpu.quantized_matmul(a, 0.1, 7, b[:, 0], 0.1, None, 3.0, 1))
    show(dmlcpu.quantized_matmul(a, 3e38, 7, b, 3e38, None, 3e-38, 1))  # the multiplier overflows
    wide = np.empty((4, 5), np.int64)
    assert dmlcpu.matmul_integer(a[0], [1, 2, 3, 4], dmlcpu.pack_b(b), -5, out_dtype=np.int64, out=wide) is wide
    show(wide)
    floats = (a[0], 0.5, [1, 2, 3, 4], dmlcpu.pack_b(b), [0.1, -1, 0, np.inf, np.nan], -5)
    show(dmlcpu.matmul_integer_to_float(*floats))
    show(dmlcpu.matmul_integer_to_float(*floats, np.arange(4, dtype=np.float16)[:, None], out_dtype="float16"))
    for per_row in (False, True):
        show(dmlcpu.dynamic_quantize_matmul(a - 99.5, *floats[3:], [5, 4, 3, 2, 1], per_row=per_row))
    show(*dmlcpu.matmul_top_k(a[0], b, 3, b_scale=[0.1, -1, 0, np.inf, np.nan], bias=[[1, 2, 3, 4, 5]]))
    show(*dmlcpu.matmul_top_k(a[0, 0], dmlcpu.pack_b(b), 3, a_zero_point=9, mode="smallest"))
    """
    assert len(same(plain, code)) == 20


def test_refusals_are_the_same_and_come_before_the_first_write(plain: Way) -> None:
    code = """
    x, pair = np.arange(6.0), (np.zeros(2), np.zeros(2, np.int64))
    refused(dmlcpu.top_k, x, 7, outputs=())
    refused(dmlcpu.top_k, x, 3, out=pair, outputs=pair)
    refused(dmlcpu.top_k, x, "3", outputs=())
    refused(dmlcpu.top_k, x.astype("M8[s]"), 3, outputs=())

    a, b, out = np.ones((2, 3), np.int8), np.ones((3, 4), np.int8), np.full((2, 4), 5, np.int8)
    refused(dmlcpu.quantized_matmul, a, -1.0, None, b, 1.0, None, 1.0, None, out=out, outputs=[out])
    refused(dmlcpu.quantized_matmul, a, 1.0, 200, dmlcpu.pack_b(b), 1.0, None, 1.0, None, out=out, outputs=[out])
    refused(dmlcpu.quantized_matmul, a, 1.0, None, dmlcpu.pack_b(b[:2]), 1.0, None, 1.0, None, outputs=())
    refused(dmlcpu.pack_b, b[0], outputs=())

    x = np.arange(20, dtype=np.int64).reshape(4, 5)
    out = np.full_like(x, -1)
    for dtype in ("int8", "uint8", "int16", "int32", "uint32", "int64", "uint64"):
        limits = np.iinfo(dtype)
        for bad in (4, 5, limits.max, limits.min) if limits.min else (4, 5, limits.max):
            for tuples in (rng.permutation(24)[:2], [5]):
                indices = rng.integers(0, 4, (3, 4, 2)).astype(dtype)
                indices.reshape(-1)[tuples] = bad
                indices[2, 3, 0] = 100
                for given in (indices, np.asfortranarray(indices)):
                    refused(dmlcpu.scatter_nd, x, given, np.ones((3, 4), np.int64), out=out, outputs=[x, out])
        refused(dmlcpu.scatter_nd, x, [[1, 1], [9, 9]], [1, 2], reduction="add", out=x, outputs=[x])
    refused(dmlcpu.scatter_nd, x, [[-5, 0]], [1], outputs=())
    refused(dmlcpu.scatter_nd, x[:0], [[0, 0]], [1], outputs=())
    refused(dmlcpu.scatter_nd, x[:0], [[0, 0]], [1], mode="clip", outputs=())
    refused(dmlcpu.scatter_nd, x, [[0, 0]], [1], mode="wrap", outputs=())
    """
    lines = same(plain, code)
    names = ["BindingError", "DmlError", "IndexOutOfRangeError", "TypeError", "UnsupportedError"]
    assert sorted({line.split(":")[0] for line in lines}) == names
    assert (
        "IndexOutOfRangeError: scatter_nd: indices[0, 0] is -5; allowed: -4 to 3 "
        "(coordinate 0 of tuple 0; that dimension has 4 elements)" in lines
    )


def test_indices_out_of_range_are_dropped_or_clipped(plain: Way) -> None:
    code = """
    x = np.arange(20, dtype=np.float32).reshape(4, 5)
    for dtype in ("int8", "uint8", "int32", "uint32", "int64", "uint64"):
        limits = np.iinfo(dtype)
        indices = np.array([[0, 4], [limits.max, 2], [1, limits.min], [3, 5], [4, 0], [2, 3], [2, 3]], dtype)
        for mode in ("drop", "clip"):
            for reduction in ("none", "add"):
                updates = np.arange(100, 107, dtype=np.float32)
                show(dmlcpu.scatter_nd(x, indices, updates, mode=mode, reduction=reduction))
    show(dmlcpu.scatter_nd(x[:0], [[0], [3]], np.ones((2, 5), np.float32), mode="drop"))
    show(dmlcpu.scatter_nd(x, np.zeros((2, 0), int), np.stack([x, x + 1]), mode="clip"))
    """
    assert len(set(same(plain, code))) > 5


def by(who: str, code: str) -> str:
    """Return code in which WHO names the way that packs the matrices."""
    return f"WHO = {who!r}\n{textwrap.dedent(code)}"


SHAPES = "[(5, 7), (64, 96), (1, 1), (0, 3), (3, 0), (2, 0, 4), (0, 3, 4), (2, 3, 33, 40)]"


def test_packed_matrices_are_the_same_bits_and_may_be_exchanged(plain: Way, tmp_path: Path) -> None:
    pack = f"""
    packed = []
    for shape in {SHAPES}:
        for dtype in (np.int8, np.uint8):
            b = rng.integers(0, 256, shape).astype(np.uint8).view(dtype)
            twice = np.zeros((*shape[:-1], 2 * shape[-1]), dtype)
            twice[..., ::2] = b
            for given in (b, np.ascontiguousarray(b.swapaxes(-1, -2)).swapaxes(-1, -2), twice[..., ::2]):
                mine = dmlcpu.pack_b(given)
                print(mine)
                show(mine.panels, mine.sums)
            packed.append((b, mine))
    with open(f"{tmp_path}/from-{{WHO}}", "wb") as file:
        pickle.dump(packed, file)
    """
    multiply = f"""
    with open(f"{tmp_path}/from-{{WHO}}", "rb") as file:
        packed = pickle.load(file)
    for b, mine in packed:
        assert mine.panels.ctypes.data % 64 == 0 or not mine.panels.size
        a = rng.integers(0, 256, (*b.shape[:-2], 6, b.shape[-2])).astype(np.uint8)
        args = a, 0.5, 9, mine, 0.25, 3, 50.0, 100
        found = dmlcpu.quantized_matmul(*args)
        expected = reference.quantized_matmul(*args[:3], b, *args[4:])
        assert found.dtype == expected.dtype and found.shape == expected.shape and (found == expected).all()
        show(found)
    """
    packed = plain(by("plain", pack))
    assert packed == compiled(by("compiled", pack))
    assert len(packed.splitlines()) == 8 * 2 * 3 * 3
    products = plain(by("compiled", multiply))
    assert products == compiled(by("plain", multiply))
    assert len(products.splitlines()) == 8 * 2


DESCRIPTORS = """
from desc_builders import OWNED, quantized_desc, scatter_desc, small_scatter_desc, tensor, top_k1_desc, top_k_desc
from dmlcpu import compile_operator

def draw(name, slot):
    if "scale" in name:
        return rng.uniform(0.5, 2, slot.sizes).astype(np.float32)
    if "indices" in name:
        return rng.integers(0, 2, slot.sizes).astype(slot.dtype)
    return rng.integers(0, 100, slot.sizes).astype(slot.dtype)

def given_for(desc):
    return {field.name: draw(field.name, slot) for field, slot in desc.tensors()}

def owned_and_given(desc):
    given = given_for(desc)
    owned = {field.name: given.pop(field.name) for field, slot in desc.tensors() if slot.flags & OWNED}
    return owned, given

def show_result(result):
    show(*(result if isinstance(result, tuple) else (result,)))
"""


def test_descriptors_with_every_way_to_bind_tensors(plain: Way) -> None:
    code = """
    for desc in [build() for build in (top_k_desc, top_k1_desc, scatter_desc, small_scatter_desc, quantized_desc)]:
        operator, given = compile_operator(desc), given_for(desc)
        show_result(operator(**given))  # in memory of their own
        show_result(operator(**given))
        inputs = {n: x for n, x in given.items() if not n.startswith("output_") or n.endswith(("scale_tensor"))}
        show_result(operator(**inputs))
        show_result(operator(**{n: x.reshape(-1).view(np.uint8) for n, x in given.items()}))
        show_result(operator(**{n: np.asfortranarray(x) for n, x in given.items()}))
    x = given_for(small_scatter_desc())
    x["output_tensor"] = x["input_tensor"]
    assert compile_operator(small_scatter_desc())(**x) is x["input_tensor"]
    show(x["input_tensor"])
    show_result(compile_operator(top_k_desc(input_tensor=tensor("FLOAT32", 1, 1, 3, 4, strides=(12, 12, 1, 3))))(
        input_tensor=rng.standard_normal(12, dtype=np.float32)))
    """
    lines = same(plain, DESCRIPTORS + textwrap.dedent(code))
    assert len(lines) == 5 * (2 + 2 + 1 + 1 + 1) + 3


def test_descriptors_that_own_tensors(plain: Way) -> None:
    code = """
    zero = {"a_zero_point_tensor": tensor("UINT8", 1, 1, 2, 1), "output_zero_point_tensor": tensor("INT8", 1, 1, 1, 1)}
    own = lambda slot: tensor(slot.data_type.name, *slot.sizes, flags=OWNED)
    for build, names in (
        (quantized_desc, ["b_tensor"]),
        (quantized_desc, ["b_tensor", "b_scale_tensor", "a_zero_point_tensor"]),
        (quantized_desc, ["a_tensor", "a_scale_tensor", "output_scale_tensor", "output_zero_point_tensor"]),
        (top_k_desc, ["input_tensor"]),
        (small_scatter_desc, ["input_tensor"]),
        (scatter_desc, ["indices_tensor", "updates_tensor"]),
    ):
        base = zero if build is quantized_desc else {}
        slots = {field.name: slot for field, slot in build(**base).tensors()}
        desc = build(**{**base, **{name: own(slots[name]) for name in names}})
        operator = compile_operator(desc)
        for again in range(2):
            owned, given = owned_and_given(desc)
            operator.initialize(**owned)
            show_result(operator(**given))
            show_result(operator(**{n: np.asfortranarray(x) for n, x in given.items()}))
    """
    lines = same(plain, DESCRIPTORS + textwrap.dedent(code))
    assert len(lines) == 2 * 2 * (1 + 1 + 1 + 2 + 1 + 1)


def test_descriptors_refuse_the_same_calls(plain: Way) -> None:
    code = """
    operator, given = compile_operator(small_scatter_desc()), given_for(small_scatter_desc())
    given["indices_tensor"][:, 0] = 7, 0, -9, 8
    forms = [given, {n: x if n == "output_tensor" else x.reshape(-1) for n, x in given.items()}]
    for form in forms:
        refused(operator, **form, outputs=[given["output_tensor"]])
    operator, given = compile_operator(quantized_desc()), given_for(quantized_desc())
    given["a_scale_tensor"][0, 0, 1, 0] = -1
    refused(operator, **given, outputs=[given["output_tensor"]])
    del given["b_tensor"]
    refused(operator, **given, outputs=[given["output_tensor"]])
    """
    lines = same(plain, DESCRIPTORS + textwrap.dedent(code))
    assert lines[0] == lines[1]
    assert "DML_OPERATOR_SCATTER_ND: IndicesTensor[2, 0] is -9;" in lines[0]
    assert "AScaleTensor[0, 0, 1, 0] is -1.0" in lines[2]
    assert len(lines) == 4


def command(*arguments: str, folder: Path = ROOT) -> str:
    """Return code that runs the command line in a folder."""
    return f"with contextlib.chdir({str(folder)!r}):\n    assert dmlcpu.cli.main({list(arguments)!r}) == 0"


def test_the_command_line_runs_a_model(plain: Way, tmp_path: Path) -> None:
    printed, files = [], []
    for way, folder in ((plain, tmp_path / "plain"), (compiled, tmp_path / "compiled")):
        folder.mkdir()
        text = way(command("run", str(MODEL), folder=folder))
        printed.append(re.sub(r"\d+\.\d+ ms", "... ms", text.replace(str(folder), "")))
        files.append({path.name: np.load(path).tobytes() for path in folder.iterdir()})
    assert printed[0] == printed[1]
    assert files[0] == files[1]
    assert files[0]


def test_warmup_says_that_nothing_is_compiled(plain: Way) -> None:
    assert plain(command("warmup")) == (
        "nothing to compile: compilation is switched off (NUMBA_DISABLE_JIT), the reference gives all results\n"
    )


def test_nothing_is_measured(plain: Way) -> None:
    assert plain(command("info", "--measure")) == (
        "nothing is measured\n"
        "advice\n"
        "  Compilation is switched off, so dmlcpu.reference computes all results, slowly: unset NUMBA_DISABLE_JIT.\n"
    )
    data = json.loads(plain(command("info", "--measure", "--json")))
    assert (data["limits"], data["operators"], len(data["advice"])) == ([], [], 1)


@pytest.mark.parametrize("off", [True, False], ids=["plain", "compiled"])
def test_config_shows_whether_compilation_is_on(plain: Way, monkeypatch: pytest.MonkeyPatch, off: bool) -> None:
    monkeypatch.setenv("NUMBA_DISABLE_JIT", "0")  # of this process
    way = plain if off else compiled
    text = way("dmlcpu.show_config()")
    assert way(command("info")) == text
    state, setting = ("switched off: results come from dmlcpu.reference", "1") if off else ("on", "0")
    found = re.search(r"^compilation\n  state +(.*)\n  NUMBA_DISABLE_JIT +(.*)$", text, re.M)
    assert found.groups() == (state, setting)
    shown = json.loads(way(command("info", "--json")))
    assert shown["compilation"] == {"state": state, "NUMBA_DISABLE_JIT": setting}
    assert (shown["cache"]["folder"] == "none: compilation is switched off") is off


SWITCH = """
from desc_builders import top_k_desc
x, indices = rng.standard_normal((1, 1, 3, 4), dtype=np.float32), rng.integers(0, 3, (5, 1))
outputs = {"output_value_tensor": np.empty((1, 1, 3, 2), np.float32),
           "output_index_tensor": np.empty((1, 1, 3, 2), np.uint32)}
operator = dmlcpu.compile_operator(top_k_desc())
a, b = np.arange(6, dtype=np.uint8).reshape(2, 3), np.arange(6, dtype=np.int8).reshape(3, 2)
packed = dmlcpu.pack_b(b)

def results():
    found = [
        *operator(input_tensor=x, **outputs),
        *dmlcpu.top_k(x, 2),
        dmlcpu.scatter_nd(np.zeros(3, np.float32), indices, np.ones(5, np.float32), reduction="add"),
        dmlcpu.quantized_matmul(a, 1.0, None, packed, 1.0, None, 1.0, None),
        dmlcpu.quantized_matmul(a, 1.0, None, b, 1.0, None, 1.0, None),
        dmlcpu.pack_b(b).panels,
    ]
    return [(array.dtype, array.tobytes()) for array in found]
"""


def test_compilation_may_be_switched_off_and_on_in_a_process() -> None:
    """While it is off, a kernel that is not compiled must not be marked as compiled."""
    code = """
    found = [results() for numba.config.DISABLE_JIT in (1, 0, 1)]
    assert found[0] == found[1] == found[2]
    """
    run(SHOW + SWITCH + textwrap.dedent(code), PYTHONPATH=_PATH)


def test_package_imported_without_compilation_stays_without(plain: Way) -> None:
    code = """
    before = results()
    numba.config.DISABLE_JIT = 0
    assert results() == before
    dmlcpu.show_config()
    """
    assert "switched off" in plain(SWITCH + textwrap.dedent(code))
