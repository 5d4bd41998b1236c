"""Random models: blocks from a matrix of floats to another, of WIDTH columns."""

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402
from onnx_parts import info, node  # noqa: E402

WIDTH = 8
SHAPE = "n", WIDTH


class Maker:
    """A model in the making: blocks from a matrix of floats to another, of WIDTH columns."""

    def __init__(self, draw):
        self.draw, self.nodes, self.constants, self.functions, self.count = draw, [], {}, {}, 0
        self.domains, self.version = set(), int(draw.integers(11, 24))

    def add(self, operator, *inputs, outputs=1, **attributes):
        """Add a node, and return the name of its first result. Arrays are constants."""
        names = [each if isinstance(each, str) else self.constant(each) for each in inputs]
        results = [self.name() for _ in range(outputs)]
        self.nodes.append(node(operator, names, results, f"the {operator} {self.count}", **attributes))
        return results[0] if outputs == 1 else results

    def name(self):
        self.count += 1
        return f"v{self.count}"

    def constant(self, array):
        name = f"c{len(self.constants)}"
        self.constants[name] = np.asarray(array)
        return name

    def weights(self):
        """Return weights of seven bits, with which ONNX Runtime is exact on processors without VNNI, too."""
        return self.draw.integers(-64, 64, (WIDTH, WIDTH)).astype(np.int8)

    def places(self, x):
        """Return places in the rows of x, of its shape."""
        return self.add("TopK", x, np.array([WIDTH]), outputs=2)[1]

    def imports(self, *domains):
        return [helper.make_opsetid("", self.version), *(helper.make_opsetid(each, 1) for each in domains)]

    def body(self, nodes, inputs, outputs, constants=()):
        """Return a branch, or the body of a loop; inputs and outputs: their names, types and shapes."""
        given, found = ([info(*each) for each in ends] for ends in (inputs, outputs))
        tensors = [numpy_helper.from_array(np.asarray(array), name) for name, array in constants]
        return helper.make_graph(nodes, "body", given, found, tensors)

    def scales(self):
        return np.float32(self.draw.choice([0.25, 0.5])), np.uint8(self.draw.integers(256))


def plain(make, x):
    operator = make.draw.choice(["Neg", "Relu", "Identity", "Abs", "Floor"])
    return make.add(operator, x)


def clipped(make, x):
    return make.add("Clip", x, "", np.float32(9))


def added(make, x):
    return make.add("Add", x, make.draw.integers(-4, 5, WIDTH).astype(np.float32))


def reshaped(make, x):
    flat = make.add("Reshape", x, np.array([-1]))
    return make.add("Reshape", flat, make.add("Shape", x))


def best(make, x):
    return make.add("TopK", x, np.array([WIDTH]), outputs=2, largest=int(make.draw.integers(2)))[0]


def scattered(make, x):
    return make.add("ScatterElements", x, make.places(x), make.add("Neg", x), axis=1)


def row_replaced(make, x):
    return make.add("ScatterND", x, np.array([[0]]), np.arange(WIDTH, dtype=np.float32)[None])


def quantized(make, x):
    scale, zero = make.scales()
    q, ws = make.add("QuantizeLinear", x, scale, zero), np.float32(0.125)
    product = make.add("QLinearMatMul", q, scale, zero, make.weights(), ws, np.int8(0), np.float32(4), zero)
    return make.add("DequantizeLinear", product, np.float32(0.5), zero)


def between_quantizers(make, x):
    scale, zero = make.scales()
    a = make.add("DequantizeLinear", make.add("QuantizeLinear", x, scale, zero), scale, zero)
    b = make.add("DequantizeLinear", make.weights(), np.float32(0.125), np.int8(0))
    q = make.add("QuantizeLinear", make.add("MatMul", a, b), np.float32(4), zero)
    return make.add("DequantizeLinear", q, np.float32(0.5), zero)


def dynamic(make, x):
    q, scale, zero = make.add("DynamicQuantizeLinear", x, outputs=3)
    sums = make.add("MatMulInteger", q, make.weights(), *([zero] if make.draw.integers(2) else []))
    scales = make.add("Mul", scale, np.float32(0.125))
    scaled = make.add("Mul", make.add("Cast", sums, to=TensorProto.FLOAT), scales)
    rounded = make.add("Round", make.add("Mul", scaled, np.float32(0.0625)))
    return make.add("Add", rounded, np.arange(WIDTH, dtype=np.float32)) if make.draw.integers(2) else rounded


def in_halves(make, x):
    halves = make.add("Cast", x, to=TensorProto.FLOAT16)
    return make.add("Cast", best(make, halves), to=TensorProto.FLOAT)


def from_a_sequence(make, x):
    """A sequence is made before these kernels run, and read afterwards."""
    sequence = make.add("SequenceConstruct", make.add("Abs", x), x)
    return make.add("SequenceAt", sequence, make.add("ReduceMin", make.places(x), keepdims=0))


def looped(make, x):
    """A loop, in which an operator of these kernels stays."""
    going, before, after, values, places, goes = (make.name() for _ in range(6))
    nodes = [node("TopK", [before, make.constant(np.array([WIDTH]))], [values, places])]
    nodes += [node("Neg", [values], [after]), node("Identity", [going], [goes])]
    inputs = [(make.name(), np.int64, []), (going, bool, []), (before, np.float32, SHAPE)]
    body = make.body(nodes, inputs, [(goes, bool, []), (after, np.float32, SHAPE)])
    return make.add("Loop", np.array(2), "", x, body=body)


def branched(make, x):
    """A branch that reads a value from around it, and in which an operator of these kernels stays."""
    bodies = []
    for operator in ("Neg", "Abs"):
        inner, values, places = (make.name() for _ in range(3))
        nodes = [
            node(operator, [x], [inner]),
            node("TopK", [inner, make.constant(np.array([WIDTH]))], [values, places]),
        ]
        bodies.append(make.body(nodes, [], [(values, np.float32, SHAPE)]))
    return make.add("If", make.constant(np.array(True)), then_branch=bodies[0], else_branch=bodies[1])


def nested_branches(make, x):
    """A branch in a branch. Both have names in common, constants of their own, and read values from around both."""
    around = make.add("Neg", x)
    large = make.add("Greater", make.add("ReduceMax", x, keepdims=0), np.float32(make.draw.integers(-9, 9)))
    inner, outer = make.name(), make.name()
    bodies = []
    for operator in ("Add", "Sub"):
        one = (f"{inner} one", np.float32(1))
        nodes = [node(operator, [around, one[0]], [inner])]
        bodies.append(make.body(nodes, [], [(inner, np.float32, SHAPE)], [one]))
    deep = [node("If", [large], [outer], then_branch=bodies[0], else_branch=bodies[1])]
    flat = [node("Identity", [around], [outer])]
    deep, flat = (make.body(nodes, [], [(outer, np.float32, SHAPE)]) for nodes in (deep, flat))
    least = make.add("ReduceMin", make.places(x), keepdims=0)
    return make.add("If", make.add("Cast", least, to=TensorProto.BOOL), then_branch=flat, else_branch=deep)


def scanned(make, x):
    """The rows one after the other, in each the best."""
    row, values, places = (make.name() for _ in range(3))
    nodes = [node("TopK", [row, make.constant(np.array([WIDTH]))], [values, places])]
    body = make.body(nodes, [(row, np.float32, [WIDTH])], [(values, np.float32, [WIDTH])])
    return make.add("Scan", x, body=body, num_scan_inputs=1)


def words(make, x):
    """Strings are made before these kernels run, and read afterwards."""
    strings = make.add("Cast", x, to=TensorProto.STRING)
    least = make.add("Cast", make.add("ReduceMin", make.places(x), keepdims=0), to=TensorProto.FLOAT)
    return make.add("Add", make.add("Cast", strings, to=TensorProto.FLOAT), least)


def masked(make, x):
    is_less = make.add("Less", x, np.float32(make.draw.integers(-5, 5)))
    return make.add("Where", is_less, best(make, x), x)


def wrapped(make, x):
    """An optional value: NumPy and ONNX Runtime do not exchange it, so that the model stays whole."""
    if make.version < 16 or make.draw.integers(4):
        return plain(make, x)
    kept = make.add("Optional", make.add("Neg", x))
    return make.add("Add", make.add("OptionalGetElement", kept), best(make, x))


def split(make, x):
    sizes = np.array([3, WIDTH - 3])
    if make.version < 13:
        left, right = make.add("Split", x, outputs=2, axis=1, split=sizes)
    else:
        left, right = make.add("Split", x, sizes, outputs=2, axis=1)
    return make.add("Concat", right, left, axis=1)


def dropped(make, x):
    """A node whose second result is read by none."""
    return make.add("Dropout", x, outputs=2)[0]


def computed_k(make, x):
    return make.add("TopK", x, make.add("Gather", make.add("Shape", x), np.array([1])), outputs=2)[0]


def computed_constants(make, x):
    column = make.add("Cast", make.draw.integers(-4, 5, (WIDTH, 1)), to=TensorProto.FLOAT)
    return make.add("Add", x, make.add("Transpose", column, perm=[1, 0]))


def twice_the_same(make, x):
    one, other = make.add("Neg", x), make.add("Neg", x)
    return make.add("Max", make.add("Floor", one), best(make, other))


def first_places(make, x):
    """Places as numbers; the best themselves are read by none."""
    return make.add("Add", x, make.add("Cast", make.places(x), to=TensorProto.FLOAT))


def binarized(make, x):
    make.domains.add("ai.onnx.ml")
    return make.add("Add", x, make.add("Binarizer", x, domain="ai.onnx.ml", threshold=1.0))


def called(make, x):
    """A function with an attribute, and a second result that is read by none."""
    attribute = helper.make_attribute_ref("largest", onnx.AttributeProto.INT)
    attribute.ref_attr_name = "falling"
    inner = node("TopK", ["a", "k"], ["values", "at"])
    inner.attribute.append(attribute)
    nodes = [
        node("Shape", ["a"], ["s"]),
        node("Constant", [], ["one"], value=numpy_helper.from_array(np.array([1]))),
        node("Gather", ["s", "one"], ["k"]),
    ]
    nodes += [inner, node("Neg", ["values"], ["b"])]
    names = "of.mine", "Best", ["a"], ["b", "at"]
    make.functions["Best"] = helper.make_function(*names, nodes, make.imports(), ["falling"])
    make.domains.add("of.mine")
    return make.add("Best", x, outputs=2, domain="of.mine", falling=int(make.draw.integers(2)))[0]


def calls_a_caller(make, x):
    """A function that calls another in a branch, and is called twice; its input b may be missing."""
    called(make, x)
    call = make.body([node("Best", ["a"], ["c", "at"], domain="of.mine", falling=1)], [], [("c", np.float32, SHAPE)])
    kept = make.body([node("Clip", ["a", "b"], ["c"])], [], [("c", np.float32, SHAPE)])
    nodes = [
        node("ReduceMax", ["a"], ["most"], keepdims=0),
        node("Cast", ["most"], ["flag"], to=TensorProto.BOOL),
        node("If", ["flag"], ["d"], then_branch=call, else_branch=kept),
    ]
    names = "of.mine", "Twice", ["a", "b"], ["d"]
    make.functions["Twice"] = helper.make_function(*names, nodes, make.imports("of.mine"))
    first = make.add("Twice", x, np.float32(-5), domain="of.mine")
    return make.add("Twice", first, domain="of.mine")


BLOCKS = [
    *(plain, clipped, added, reshaped, best, scattered, row_replaced, quantized, between_quantizers, dynamic),
    *(in_halves, from_a_sequence, looped, branched, words, masked, wrapped, scanned, split, dropped, computed_k),
    *(computed_constants, twice_the_same, first_places, binarized, nested_branches, called, calls_a_caller),
]


def made(draw):
    """Return a valid model from x to y."""
    make, x = Maker(draw), "x"
    for place in draw.integers(len(BLOCKS), size=draw.integers(2, 7)):
        x = BLOCKS[place](make, x)
    make.nodes.append(node("Neg", [x], ["y"], "last"))
    initializers = [numpy_helper.from_array(array, name) for name, array in make.constants.items()]
    inputs, outputs = [info("x", np.float32, ["n", WIDTH])], [info("y", np.float32, ["n", WIDTH])]
    graph = helper.make_graph(make.nodes, "model", inputs, outputs, initializers)
    imports = make.imports(*sorted(make.domains))
    model = helper.make_model(graph, opset_imports=imports, functions=[*make.functions.values()], ir_version=8)
    onnx.checker.check_model(model, full_check=True)
    return model
