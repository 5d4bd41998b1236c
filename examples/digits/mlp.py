"""Classify handwritten digits by a small 8-bit network, and compare it with float32 and with ONNX Runtime.

    python mlp.py

The network has 64 pixels, 128 hidden units with ReLU and 10 scores. NumPy trains it in float32 on the 1,500 stored
images in a fraction of a second; the script then quantizes it and classifies the 297 queries. ONNX Runtime runs the
same two QLinearMatMul nodes if the packages onnx and onnxruntime are installed.
"""

import argparse
import statistics
import time
from pathlib import Path
from typing import NamedTuple

import numba
import numpy as np

import dmlcpu

# On x86 processors without VNNI, ONNX Runtime adds two products of uint8 by int8 in 16 bits, which saturate. Weights of
# -64 to 64 cannot saturate them (2 * 255 * 64 = 32,640), so its sums are exact with VNNI and without.
LARGEST_WEIGHT = 64
PIXEL_SCALE = np.float32(1 / 255)  # each image's brightest pixel is 255; the network does not use the images' lengths


class Layer(NamedTuple):
    """The arguments of dmlcpu.quantized_matmul after `a`. a_scale and y_scale are numbers, b_scale has one per column.

    QLinearMatMul adds no bias. The network is trained without biases, which loses no accuracy here.
    """

    a_scale: np.float32
    a_zero_point: np.uint8
    b: np.ndarray | dmlcpu.PackedMatrix
    b_scale: np.ndarray
    b_zero_point: np.ndarray
    y_scale: np.float32
    y_zero_point: np.uint8


def main():
    args = parse_arguments()
    stored, stored_labels = load("stored")
    queries, labels = load("queries")
    start = time.perf_counter()
    weights = train(stored, stored_labels)
    print(f"trained on {len(stored)} images in {time.perf_counter() - start:.1f} s")

    layers = quantize(weights, stored)
    packed = [layer._replace(b=dmlcpu.pack_b(layer.b)) for layer in layers]
    networks = {"dmlcpu": lambda images: predict(packed, images)}
    versions = [f"numba {numba.__version__}", f"numpy {np.__version__}"]
    try:
        import onnxruntime

        networks["onnxruntime"] = onnxruntime_session(layers, args.threads)
        versions.append(f"onnxruntime {onnxruntime.__version__}")
    except ImportError as error:
        print(f"no comparison: {error.name} is not installed")

    before = dmlcpu.get_num_threads()
    dmlcpu.set_num_threads(args.threads)
    try:
        times = {n: medians(networks, queries[:n]) for n in (1, len(queries))}
    finally:
        dmlcpu.set_num_threads(before)

    print(f"{', '.join(versions)}, {args.threads} thread{'s' if args.threads > 1 else ''}\n")
    print(f"{'':12} {'accuracy':>16} {'1 image':>10} {f'{len(queries)} images':>12}")
    print_row("float32", scores_in_float32(weights, queries), labels)
    for name, network in networks.items():
        print_row(name, network(queries), labels, *[times[n][name] for n in times])
    print(f"(times of the two products: medians of {ROUNDS} alternating rounds of {CALLS} warm calls)")
    if "onnxruntime" in networks:
        images = np.concatenate([stored, queries])
        ours, theirs = [network(images) for network in networks.values()]
        print(f"{ours.size} scores equal bit for bit: {'yes' if np.array_equal(ours, theirs) else 'no'}")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    # With more than one thread, threads of one library that still spin after a call slow down the other's next call.
    parser.add_argument("--threads", type=int, default=1, help="threads for each library (default: %(default)s)")
    return parser.parse_args()


def load(name):
    """Return images and labels."""
    folder = Path(__file__).parent
    return [np.load(folder / f"{name}{part}.npy") for part in ("", "_labels")]


# The network in float32


def train(images, labels, *, hidden=128, epochs=30, batch=50, rate=0.1, momentum=0.9, seed=0):
    """Return the float32 weights of both layers, by gradient descent on the cross entropy."""
    rng = np.random.default_rng(seed)
    sizes = [(images.shape[1], hidden), (hidden, 10)]
    weights = [(rng.standard_normal(size) * np.sqrt(2 / size[0])).astype(np.float32) for size in sizes]
    steps = [np.zeros_like(w) for w in weights]
    targets = np.eye(10, dtype=np.float32)[labels]
    for _ in range(epochs):
        for chosen in np.split(rng.permutation(len(images)), range(batch, len(images), batch)):
            x = images[chosen] * PIXEL_SCALE
            h = np.maximum(x @ weights[0], 0)
            scores = h @ weights[1]
            p = np.exp(scores - scores.max(axis=1, keepdims=True))
            error = (p / p.sum(axis=1, keepdims=True) - targets[chosen]) / len(chosen)
            gradients = x.T @ (error @ weights[1].T * (h > 0)), h.T @ error
            for w, step, gradient in zip(weights, steps, gradients, strict=True):
                step *= momentum
                step -= rate * gradient
                w += step
    return weights


def scores_in_float32(weights, images):
    return np.maximum(images * PIXEL_SCALE @ weights[0], 0) @ weights[1]


# The network in 8 bits


def quantize(weights, images):
    """Return the layers. The network's outputs for some images give the ranges (calibration)."""
    pixels = PIXEL_SCALE, np.uint8(0)
    hidden = scale_and_zero_point(np.maximum(images * PIXEL_SCALE @ weights[0], 0))
    scores = scale_and_zero_point(scores_in_float32(weights, images))
    return [
        Layer(*pixels, *quantize_columns(weights[0]), *hidden),
        Layer(*hidden, *quantize_columns(weights[1]), *scores),
    ]


def quantize_columns(weights):
    """Return int8 weights, each column's scale, and zero points of 0."""
    scale = np.abs(weights).max(axis=0) / np.float32(LARGEST_WEIGHT)
    return np.rint(weights / scale).astype(np.int8), scale, np.zeros(len(scale), np.int8)


def scale_and_zero_point(numbers):
    """Return the scale and zero point that map 0 to 255 to the range of the numbers. After ReLU the zero point is 0."""
    lowest, highest = min(0, numbers.min()), numbers.max()
    scale = np.float32((highest - lowest) / 255)
    return scale, np.uint8(np.rint(-lowest / scale))


def predict(layers, images):
    """Return uint8 scores. ReLU needs no step: with a zero point of 0, uint8 clips negative numbers."""
    first, second = layers
    return dmlcpu.quantized_matmul(dmlcpu.quantized_matmul(images, *first), *second)


def onnxruntime_session(layers, threads):
    """Return a function that runs the same layers in ONNX Runtime; only the images are an input."""
    import onnxruntime
    from onnx import TensorProto, helper, numpy_helper

    nodes, constants = [], []
    for i, layer in enumerate(layers):
        arrays = {f"{name}_{i}": np.asarray(array) for name, array in layer._asdict().items()}
        nodes.append(helper.make_node("QLinearMatMul", [f"x_{i}", *arrays], [f"x_{i + 1}"]))
        constants += [numpy_helper.from_array(array, name) for name, array in arrays.items()]
    images = helper.make_tensor_value_info("x_0", TensorProto.UINT8, ["images", len(layers[0].b)])
    scores = helper.make_tensor_value_info(f"x_{len(layers)}", TensorProto.UINT8, ["images", 10])
    graph = helper.make_graph(nodes, "mlp", [images], [scores], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return lambda images: session.run(None, {"x_0": images})[0]


# Comparing

ROUNDS, CALLS = 15, 20


def medians(networks, images):
    """Return the seconds of each network for the images. All allocate their results."""
    times = {name: [] for name in networks}
    for i in range(ROUNDS + 1):
        for name, network in networks.items():
            start = time.perf_counter()
            for _ in range(CALLS):
                network(images)
            if i > 0:  # the first round compiles, or loads compiled code
                times[name].append((time.perf_counter() - start) / CALLS)
    return {name: statistics.median(seconds) for name, seconds in times.items()}


def print_row(name, scores, labels, *seconds):
    answers = dmlcpu.top_k(scores, 1).indices[:, 0]  # the smaller digit if scores are equal
    right = int((answers == labels).sum())
    accuracy = f"{right / len(labels):.1%} ({right})"
    columns = zip(seconds, (10, 12), strict=False)
    print(f"{name:12} {accuracy:>16}", *[f"{f'{s * 1e6:.1f} us':>{width}}" for s, width in columns])


if __name__ == "__main__":
    main()
