"""Measure how many of float32's ten best are found among vectors with fewer bytes: digits, random numbers, texts.

pip install wordllama
python recall.py
"""

import sysconfig
from pathlib import Path

import numpy as np

from dmlcpu.search import Int8Index

K = 10
DIGITS = Path(__file__).parents[1] / "digits"


def unit(x):
    return x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-30)


def exact(vectors, queries):
    """Return the best by float32 cosines, in blocks of queries."""
    vectors, queries = unit(vectors).T.copy(), unit(queries)
    blocks = [queries[start : start + 100] @ vectors for start in range(0, len(queries), 100)]
    return np.vstack([np.argsort(-block, axis=1, kind="stable")[:, :K] for block in blocks])


def recall(found, best):
    """Return the share of the best that is found."""
    pairs = zip(found.tolist(), best.tolist(), strict=True)
    return np.mean([len(set(one) & set(other)) / K for one, other in pairs])


def four_bits(x):
    """Round vectors to 16 steps between the least and the greatest value of each dimension."""
    low, high = x.min(axis=0), x.max(axis=0)
    step = np.maximum((high - low) / 15, 1e-30)
    return np.clip(np.rint((x - low) / step), 0, 15) * step + low


def rivals(vectors, queries, depths):
    """Yield each method's name, bytes per vector and recall; depths: how many first dimensions to keep, and how."""
    best = exact(vectors, queries)
    depth = vectors.shape[1]
    index = Int8Index(vectors, metric="cosine", floats=True)
    yield f"int8, {depth} dimensions", depth, recall(index.search(queries, K)[1], best)
    yield f"int8, {depth} dimensions, rescore 4", depth, recall(index.search(queries, K, rescore=4)[1], best)
    packed = four_bits(unit(vectors))
    yield f"4 bits, {depth} dimensions", depth // 2, recall(exact(packed, queries), best)
    for cut, kind, width in depths:
        some, asked = vectors[:, :cut], queries[:, :cut]
        if kind == "int8":
            found = Int8Index(some, metric="cosine").search(asked, K)[1]
        else:
            found = exact(some.astype(kind).astype(np.float32), asked)
        yield f"{kind}, the first {cut} dimensions", cut * width, recall(found, best)


def ties(vectors, queries):
    """Return the share of queries for which a tie decides place K: among bytes, and among bytes with scales."""
    rates = []
    for index in (Int8Index(Int8Index(vectors).stored.vectors), Int8Index(vectors, metric="cosine")):
        asked = Int8Index(queries).stored.vectors if index.stored.scales is None else queries
        scores, _ = index.search(asked, K + 1)
        rates.append(np.mean(scores[:, K - 1] == scores[:, K]))
    return rates


def digits():
    """Return stored images and queries as float32, and their labels."""
    images = []
    for name in ("stored", "queries"):
        rows, scales, labels = (np.load(DIGITS / f"{name}{part}.npy") for part in ("", "_scale", "_labels"))
        images += [rows * scales[:, None], labels]
    return images


def accuracy(found, labels, wanted):
    """Return the share of queries whose label is the most frequent one of the five best (the smaller one on ties)."""
    votes = (labels[found[:, :5]][..., None] == np.arange(10)).sum(axis=1)
    return np.mean(votes.argmax(axis=1) == wanted)


def texts():
    """Return embeddings of docstrings of Python's library and NumPy: nine tenths as vectors, a tenth as queries."""
    from embedder import docstrings, load_model, paragraphs

    found = [text for _, text in paragraphs()]
    for folder in (sysconfig.get_path("stdlib"), Path(np.__file__).parent):
        found += docstrings(folder)
    embeddings = load_model()(found)
    is_query = np.arange(len(found)) % 10 == 0
    return embeddings[~is_query], embeddings[is_query]


def report(name, vectors, queries, depths=()):
    print(f"\n{name}: {len(vectors):,} x {vectors.shape[1]}, {len(queries):,} queries, recall@{K} of float32 cosines")
    for way, nbytes, rate in rivals(vectors, queries, depths):
        print(f"  {nbytes:4} bytes  {rate:.4f}  {way}")
    among, scaled = ties(vectors, queries)
    print(f"  a tie decides place {K}: {among:.1%} of queries by bytes alone, {scaled:.1%} with scales")


def main():
    stored, labels, asked, wanted = digits()
    report("digits", stored, asked)
    found = Int8Index(stored, metric="cosine").search(asked, K)[1]
    print(f"  correct digits: {accuracy(found, labels, wanted):.1%}, with float32 ", end="")
    print(f"{accuracy(exact(stored, asked), labels, wanted):.1%}")
    rng = np.random.default_rng(0)
    report(
        "random normals", rng.standard_normal((100_000, 384), np.float32), rng.standard_normal((500, 384), np.float32)
    )
    try:
        vectors, queries = texts()
    except ImportError as error:
        print(f"\nno texts: {error}")
        return
    depths = [(128, "float16", 2), (64, "float32", 4), (128, "int8", 1)]
    report("texts", vectors, queries, depths)


if __name__ == "__main__":
    main()
