"""Classify handwritten digits by their five nearest neighbors, in 8 bits, with three operators.

    python knn.py

Images are uint8 rows, each with a scale, made by make_data.py: scale * row has length 1, so the product of two images
is their cosine. 285 of the 297 queries are classified correctly (96.0 %), and 283 with float32 cosines: rounding to
8 bits makes a few more similarities equal, which changes the five nearest images.
"""

import argparse
import statistics
import time
from pathlib import Path

import numpy as np

import dmlcpu

K = 5
SIMILARITY_SCALE = 1 / 255  # a similarity of 1 is stored as 255


def main():
    args = parse_arguments()
    stored, stored_scale, stored_labels = load("stored")
    queries, queries_scale, queries_labels = load("queries")
    print(f"{len(queries)} queries, {len(stored)} stored images of {stored.shape[1]} pixels, {K} neighbors")

    # The stored images are the same for all queries, so they are packed once.
    packed = timed("pack_b", lambda: dmlcpu.pack_b(stored.T))
    similarities = timed(
        "quantized_matmul",
        lambda: dmlcpu.quantized_matmul(
            queries, queries_scale, None, packed, stored_scale, None, SIMILARITY_SCALE, None
        ),
    )
    similarity, neighbours = timed("top_k", lambda: dmlcpu.top_k(similarities, K))

    # A vote is an index tuple (query, digit): each neighbour adds 1 at its own label.
    labels = stored_labels[neighbours]
    tuples = np.stack([np.indices(labels.shape)[0], labels], axis=-1)
    empty, ones = np.zeros((len(queries), 10), np.int32), np.ones(labels.shape, np.int32)
    votes = timed("scatter_nd", lambda: dmlcpu.scatter_nd(empty, tuples, ones, reduction="add"))
    answers = dmlcpu.top_k(votes, 1).indices[:, 0]  # the smaller digit if votes are equal
    print("(medians of 20 warm calls; the first call, which compiles or loads compiled code, is not counted)")

    right = answers == queries_labels
    print(f"accuracy: {right.mean():.1%} ({right.sum()} of {right.size})")

    # The stored images that are a neighbour of some query. Duplicate indices write the same value.
    used = dmlcpu.scatter_nd(np.zeros(len(stored), bool), neighbours[..., None], np.ones(neighbours.shape, bool))
    print(f"{used.sum()} of {used.size} stored images are a neighbour of some query")

    if args.picture:
        some = [*np.flatnonzero(~right)[:6], *np.flatnonzero(right)[::35][:6]]
        save_picture(args.picture, some, queries, queries_labels, answers, stored[neighbours], labels, similarity)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--picture", default="knn.png", help="where to save a picture (default: %(default)s)")
    parser.add_argument("--no-picture", dest="picture", action="store_false", help="save none")
    return parser.parse_args()


def load(name):
    """Return images, scales and labels."""
    folder = Path(__file__).parent
    return [np.load(folder / f"{name}{part}.npy") for part in ("", "_scale", "_labels")]


def timed(name, step):
    """Return the result of a step, and print its time."""
    result = step()
    times = []
    for _ in range(20):
        start = time.perf_counter()
        step()
        times.append(time.perf_counter() - start)
    print(f"  {name:16} {statistics.median(times) * 1000:7.3f} ms")
    return result


def save_picture(path, some, queries, queries_labels, answers, neighbours, labels, similarity):
    """Draw some queries, each followed by its neighbours, nearest first."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        print("no picture: matplotlib is not installed")
        return

    figure = Figure(figsize=(12, 8.2), layout="constrained")
    halves = figure.subfigures(1, 2, wspace=0.06)
    for half, rows, title in [(halves[0], some[:6], "Wrong"), (halves[1], some[6:], "Correct")]:
        half.suptitle(f"{title}: a query, its {K} nearest", fontsize=13)
        for axes, q in zip(half.subplots(len(rows), 1 + K), rows, strict=True):
            color = "black" if answers[q] == queries_labels[q] else "crimson"
            draw(axes[0], queries[q], f"{queries_labels[q]}, read as {answers[q]}", color, "Blues")
            for i in range(K):
                wrong = labels[q, i] != queries_labels[q]
                text = f"{labels[q, i]}  ({similarity[q, i] * SIMILARITY_SCALE:.2f})"
                draw(axes[1 + i], neighbours[q, i], f"✗ {text}" if wrong else text, "crimson" if wrong else "black")
    figure.savefig(path, dpi=110)
    print(f"picture: {path}")


def draw(axes, image, text, color, colormap="Greys"):
    """Draw one image; the colour marks it as correct or wrong."""
    axes.imshow(image.reshape(8, 8), cmap=colormap)
    axes.set_title(text, fontsize=9, color=color)
    axes.set(xticks=[], yticks=[])
    for spine in axes.spines.values():
        spine.set(color=color, linewidth=2.5 if color == "crimson" else 0.5)


if __name__ == "__main__":
    main()
