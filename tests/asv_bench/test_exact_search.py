import numpy as np
import pytest
from asv_files import load

from dmlcpu import reference

search = load("benchmarks.search")


@pytest.mark.parametrize("implementation", search.CONTENDERS)
@pytest.mark.parametrize("queries", [1, 40])
def test_contenders_find_the_same(implementation, queries):
    vectors, asked = search.data(3000, 48)
    try:
        call = search.CONTENDERS[implementation](vectors)
    except NotImplementedError as error:
        pytest.skip(str(error))
    scores, found = call(asked[:queries], 7)
    expected, places = reference.knn(asked[:queries], vectors, 7)
    assert np.array_equal(np.asarray(scores, float), expected)
    if implementation == "dmlcpu":
        assert np.array_equal(found, places)


def test_the_benchmarks_run(monkeypatch):
    monkeypatch.setattr(search, "SIZES", {"small": (500, 16, 3)})
    benchmark = search.Search()
    benchmark.setup("dmlcpu", "small", 32)
    assert benchmark.time_search("dmlcpu", "small", 32)[1].shape == (32, 3)


def test_the_table(capsys):
    load("exact_search").main(
        ["--vectors", "200000x100 k 10", "--scale", "1000", "--turns", "1", "--only", "dmlcpu", "faiss flat"]
    )
    printed = capsys.readouterr().out
    assert "200000x100 k 10, 32 queries: dmlcpu " in printed
