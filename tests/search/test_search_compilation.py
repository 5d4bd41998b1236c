"""What is compiled, when, and what happens if nothing is."""

import itertools
from pathlib import Path

import numpy as np
import pytest
from processes import run

from dmlcpu import reference
from dmlcpu.cli import warmup
from dmlcpu.kernels import registry
from dmlcpu.runtime.threads import use_budget
from dmlcpu.search import FloatIndex, Int8Index
from dmlcpu.search.examples import TYPES, examples
from dmlcpu.search.functions import knn

HERE = Path(__file__).parent


def test_without_compilation_searches_give_the_same():
    code = f"""
    import sys
    sys.path.insert(0, {str(HERE)!r})
    from random_searches import differs, random_search
    print([seed for seed in range(1000, 1040) if differs(random_search(seed))])
    """
    assert run(code, NUMBA_DISABLE_JIT="1").strip() == "[]"


def test_compilation_that_is_switched_off_and_on_in_a_process_changes_no_result():
    code = """
    import numba
    import numpy as np
    from dmlcpu.search import FloatIndex
    x = np.random.default_rng(0).standard_normal((900, 40)).astype(np.float32)
    results = []
    for disabled in (True, False, True):
        numba.config.DISABLE_JIT = disabled
        found = FloatIndex(x, metric="l2").search(x[:5], 7)
        results.append(tuple(part.tobytes() for part in found))
    print(len(set(results)))
    """
    assert run(code).strip() == "1"


def test_importing_search_imports_nothing_heavy():
    code = """
    import sys
    import dmlcpu.search
    dmlcpu.search.__all__
    print(sorted({"numpy", "numba"} & set(sys.modules)))
    """
    assert run(code).strip() == "[]"


@pytest.mark.parametrize("dtype", TYPES)
def test_examples_give_the_reference(dtype):
    for example in examples(dtype):
        for found, expected in zip(knn(**example), reference.knn(**example), strict=True):
            assert np.array_equal(found, expected)


@pytest.mark.parametrize("metric", ["ip", "l2", "cosine"])
@pytest.mark.parametrize("count", [90, 6000])
def test_read_only_vectors_have_the_same_kernels(tmp_path, metric, count):
    x = np.random.default_rng(0).random((count, 7)).astype(np.float32)
    mask = np.arange(count) % 3 > 0

    def searched(index):
        return [part.tobytes() for rows in (1, 40) for part in index.search(x[:rows], 4, mask=mask)]

    with use_budget(2, grain=1):
        index = FloatIndex(x, metric)
        expected = searched(index)
        index.save(tmp_path / "x.index")
        np.save(tmp_path / "x.npy", x)
        read_only = x.copy()
        read_only.flags.writeable = False
        before = warmup._counts()
        for vectors in (read_only, tmp_path / "x.npy"):
            assert searched(FloatIndex(vectors, metric)) == expected
        assert searched(FloatIndex.load(tmp_path / "x.index")) == expected
    assert warmup._counts() == before


def test_warm_up_compiles_all_that_searches_need():
    text = warmup.warm_up([("search", name) for name in TYPES])
    assert text.startswith("compiled ")
    of_search = registry.available("search")
    assert {row.name for row in of_search} == {"quantize_rows", "byte_squares", "pair_sums", "encode", "refine", "scan"}
    before = [len(row.kernel.share.signatures) for row in of_search]
    assert all(before)
    rng = np.random.default_rng(0)
    for metric in ("ip", "l2", "cosine"):
        for dtype, count in itertools.product(("float32", "float64", "float16"), (90, 6000)):
            x = rng.random((count, 7)).astype(dtype)
            for queries in (x[:3], x[:20].astype(np.float64)):
                knn(queries, x, 4, metric, mask=np.arange(count) % 3 > 0)
        Int8Index(rng.random((90, 7)), metric, floats=True).search(rng.random((3, 7)), 4, rescore=3)
        knn(rng.integers(0, 9, (3, 7)).astype(np.uint8), rng.integers(0, 9, (90, 7)).astype(np.int8), 4, metric)
    assert [len(row.kernel.share.signatures) for row in of_search] == before
    assert warmup.chosen(["search"], ["int8", "float64"]) == [("search", "int8"), ("search", "float64")]
