import logging

import numba
import numpy as np
import pytest
from processes import run

from dmlcpu.kernels import registry
from dmlcpu.runtime import boxes, jit, launches, layers
from dmlcpu.runtime.kernel import kernel


@jit.device
def bump(value):
    return value + 3


@kernel
def bump_all(part, parts, x):
    for i in range(part, x.size, parts):
        x[i] = bump(x[i])


def test_kernels_are_cached_under_a_digest_of_their_helpers():
    assert bump_all.share.__qualname__ == f"bump_all_{jit.digest(bump_all.function)}"


def test_kernels_count_no_references(monkeypatch, tmp_path):
    """Atomic counts of arrays that threads share cost a tenth; the caller holds all arrays."""
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))  # a cached function has no text
    fresh = kernel(bump_all.function)
    fresh(1, np.zeros(3))
    assert ["NRT_" in text for text in fresh.share.inspect_llvm().values()] == [False]


def test_kernels_are_compiled_without_the_passes_that_find_nothing(monkeypatch, tmp_path):
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    fresh = kernel(bump_all.function)
    fresh(1, np.zeros(3))
    (compiled,) = fresh.share.overloads.values()
    ran = {name.partition("_")[2] for name in compiled.metadata["pipeline_times"]["nopython"]}
    assert "native_lowering" in ran
    unused = {getattr(numba.core.compiler, name).name() for name in jit._UNUSED_PASSES}  # Numba has them all
    assert not unused & ran


def quotient(a, b):
    return a / b


def test_one_function_with_other_options_is_other_code(monkeypatch, tmp_path):
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    for hits in (0, 1):
        numpy_way, python_way = jit.compile_lazily(quotient), jit.compile_lazily(quotient, error_model="python")
        assert numpy_way(1.0, 0.0) == np.inf
        with pytest.raises(ZeroDivisionError):
            python_way(1.0, 0.0)
        assert [sum(each.stats.cache_hits.values()) for each in (numpy_way, python_way)] == [hits] * 2


# A kernel that writes to x[2] what follows from x[0] and x[1], and the module of its helpers. The kernel's own module
# stays as it is: of that one Numba notices every change. What a test changes stands between | and |.
KERNEL = """
from watched.helpers import Pair, WORK, add, again, helper, text
from dmlcpu.runtime.kernel import kernel
from dmlcpu.runtime.records import record_at

@kernel
def watched(part, parts, x):
    work = record_at(x, 0, WORK)
    pair = Pair(work.a, work.b)
    x[2] = helper(pair.first, pair.second) + text(pair) + add(0) + again(0)
"""
HELPERS = """
import functools
from typing import NamedTuple
import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic
from dmlcpu.runtime.intrinsics import emitted
from dmlcpu.runtime.jit import device, inlined
from dmlcpu.runtime.records import record

STEP = |3|
WIDTH = ir.IntType(|64|)
WORK = record(|a=np.int64, b=np.int64|)
TABLE = np.arange(2000)
TABLE[1000] = |1000|

class Pair(NamedTuple):
    |first: int; second: int|

class Emitter:
    FACTOR = |2|

    @property
    def factor(self):
        return self.FACTOR * |1|

    def emit(self, builder, a, b):
        return builder.|add|(a, b)

def emit(builder, a, b):
    return Emitter().emit(builder, builder.|mul|(a, a.type(Emitter().factor)), b)

def emit_sum(builder, a, b):
    return builder.|add |(a, a.type(b))

emit_increase = functools.partial(emit_sum, b=|6|)

@intrinsic
def combine(context, a, b):
    def generate(context, builder, signature, arguments):
        low = builder.zext(builder.trunc(arguments[0], ir.IntType(32)), arguments[0].type)
        wide = low if WIDTH.width == 32 else arguments[0]
        return emit_increase(builder, emit(builder, wide, arguments[1]))
    return types.int64(types.int64, types.int64), generate

@emitted
def as_given(builder, a: types.|int64 |) -> types.int64:
    return builder.sext(a, ir.IntType(64))

@device
def helper(a, b):
    return combine(as_given(a), b) |+| STEP + TABLE[1000]

@inlined
def text(pair):
    return pair.first |-| pair.second

def make_adder(value):
    @device
    def add(x):
        return x + value
    return add

add, again = make_adder(5), make_adder(|7|)
"""
RESULT = 3 * (2**33 + 5) + 6 + 3 + 1000 + 5 + 7
CHANGES = {
    "a constant": ("|3|", "4"),
    "a machine type": ("|64|", "32"),
    "the fields of a record": ("|a=np.int64, b=np.int64|", "b=np.int64, a=np.int64"),
    "an element in the middle of an array": ("|1000|", "9"),
    "the order of a tuple's fields": ("|first: int; second: int|", "second: int; first: int"),
    "a method that an intrinsic uses": ("|add|", "sub"),
    "a constant of a class that an intrinsic uses": ("|2|", "3"),
    "a property that an intrinsic uses": ("|1|", "3"),
    "a function that an intrinsic uses": ("|mul|", "sdiv"),
    "a partial function that an intrinsic uses": ("|add |", "sub"),
    "an argument of a partial function": ("|6|", "9"),
    "the type of an intrinsic's argument": ("|int64 |", "int32"),
    "a helper": ("|+|", "-"),
    "an inlined helper": ("|-|", "+"),
    "what the second of two functions of one text closes over": ("|7|", "8"),
}


LOOK_UP = """
import sys; sys.path.insert(0, {folder!r}); sys.dont_write_bytecode = True
from pathlib import Path
import numpy as np
for helpers in {texts!r}:
    Path({folder!r}, "watched", "helpers.py").write_text(helpers)
    for module in [name for name in sys.modules if name.startswith("watched")]:
        del sys.modules[module]
    from watched.kernel import watched
    x = np.array([2**33 + 5, 40, 0])
    watched(1, x)
    print(sum(watched.share.stats.cache_hits.values()), x[2])
"""


def hits_and_results(folder, *texts):
    """Return how many entries of the cache are used for the kernel with these helpers, and what the kernel writes.

    One fresh process imports the kernel anew for each text of the module of helpers.
    """
    code = LOOK_UP.format(folder=str(folder), texts=[text.replace("|", "") for text in texts])
    found = run(code, NUMBA_CACHE_DIR=str(folder / "cache"))
    return [tuple(map(int, line.split())) for line in found.splitlines()]


MOVED = "from watched.moved import *"
AS_FUNCTION = HELPERS.replace("@inlined\ndef text", "@device\ndef text")


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """What `hits_and_results` returns for each text, where the cache has the kernel with its helpers as they are."""
    folder = tmp_path_factory.mktemp("watched")
    (folder / "watched").mkdir()
    (folder / "watched" / "kernel.py").write_text(KERNEL)
    (folder / "watched" / "moved.py").write_text(HELPERS.replace("|", ""))
    assert hits_and_results(folder, HELPERS) == [(0, RESULT)]
    texts = [HELPERS, *(HELPERS.replace(*change) for change in CHANGES.values()), AS_FUNCTION, MOVED]
    return dict(zip(texts, hits_and_results(folder, *texts), strict=True))


def test_another_process_finds_the_kernel_in_the_cache(found):
    assert found[HELPERS] == (1, RESULT)


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_change_of_anything_a_kernel_reaches_compiles_it_anew(found, change):
    hits, result = found[HELPERS.replace(*change)]
    assert hits == 0
    assert result != RESULT  # else the change is none


def test_how_a_helper_is_compiled_counts(found):
    """The results are the same, but not the time."""
    assert found[AS_FUNCTION] == (0, RESULT)


def test_the_modules_of_helpers_and_types_count(found):
    """Compiled code in the cache imports them."""
    assert found[MOVED] == (0, RESULT)


@pytest.mark.parametrize("seed", "123")  # of hashes: a set has another order with each
def test_the_digests_are_the_same_in_every_process(seed):
    found = run(
        """
        from dmlcpu.kernels import registry
        from dmlcpu.runtime import boxes, jit, launches, layers
        threads = [launches.launch, layers.lead, boxes.lead, boxes.serve]
        print([jit.digest(each) for each in (*threads, *(row.kernel.function for row in registry.rows()))])
        """,
        PYTHONHASHSEED=seed,
    )
    threads = [launches.launch, layers.lead, boxes.lead, boxes.serve]
    functions = (*threads, *(row.kernel.function for row in registry.rows()))
    assert found.strip() == str([jit.digest(function) for function in functions])


def test_without_a_place_for_the_cache_kernels_are_compiled_uncached(monkeypatch, caplog):
    def refuse(function):
        raise RuntimeError("cannot cache function: no locator available")

    monkeypatch.setattr(jit, "KernelCache", refuse)
    caplog.set_level(logging.DEBUG, "dmlcpu")
    compiled = [jit.compile_lazily(bump_all.function) for _ in range(2)]
    assert [function.stats.cache_path for function in compiled] == [None, None]
    assert [record.message for record in caplog.records] == [
        "compiled kernels cannot be cached (cannot cache function: no locator available); set NUMBA_CACHE_DIR to a "
        "writable folder"
    ]


FIRST_CALLS = """
import sys
import numpy as np
import dmlcpu
x = np.ones((40, 10), np.float32)
dmlcpu.top_k(x, 2)
dmlcpu.scatter_nd(x, np.ones((3, 1), np.int64), x[:3])
"""


def test_calls_of_cached_kernels_load_no_compiler():
    """What Numba's compiler knows takes 0.4 s to load, and imports SciPy where it is installed."""
    run(FIRST_CALLS)  # fills the cache
    run(FIRST_CALLS + "assert not {'numba.np.arraymath', 'numba.np.arrayobj', 'scipy.linalg'} & set(sys.modules)")
