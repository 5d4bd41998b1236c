"""Vectors, queries and what limits a search, which the fixture `folder` saves; and what is in files."""

import numpy as np

from dmlcpu.search.blocks import load_index

RNG = np.random.default_rng(0)
VECTORS = RNG.standard_normal((500, 12)).astype(np.float32)
QUERIES = RNG.standard_normal((70, 12)).astype(np.float32)
CODES = RNG.integers(0, 255, (500, 12)).astype(np.uint8)
OUT = RNG.random((70, 500)) < 0.5
RANGES = np.vstack([np.full(12, -3), np.full(12, 3)]).astype(np.float32)


def same(path, expected):
    with np.load(path) as found:
        return all(
            np.array_equal(found[name], each) for name, each in zip(("scores", "indices"), expected, strict=True)
        )


def assert_stored(path, expected):
    built = load_index(path)
    assert type(built) is type(expected)
    assert repr(built) == repr(expected)
    for name, array in expected.stored.arrays().items():
        assert np.array_equal(getattr(built.stored, name), array)
