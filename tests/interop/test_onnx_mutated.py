"""Random models, changed in ways that ONNX's IR or ONNX Runtime allows: what ONNX Runtime runs is run, equally."""

import copy

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
from onnx import TensorProto, helper, numpy_helper, shape_inference  # noqa: E402
from onnx_parts import info, node  # noqa: E402

from dmlcpu.interop.onnx import InferenceSession  # noqa: E402

WIDTH = 8
TAKEN = "TopK", "ScatterND", "ScatterElements", "QLinearMatMul", "MatMulInteger"


class Maker:
    """A model in the making: blocks from a matrix of floats to another, of WIDTH columns."""

    def __init__(self, draw):
        self.draw, self.nodes, self.constants, self.count = draw, [], {}, 0

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
    sizes = ["n", WIDTH]
    inputs = [info(make.name(), np.int64, []), info(going, bool, []), info(before, np.float32, sizes)]
    body = helper.make_graph(nodes, "loop", inputs, [info(goes, bool, []), info(after, np.float32, sizes)])
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
        bodies.append(helper.make_graph(nodes, "branch", [], [info(values, np.float32, ["n", WIDTH])]))
    return make.add("If", make.constant(np.array(True)), then_branch=bodies[0], else_branch=bodies[1])


BLOCKS = [
    *(plain, clipped, added, reshaped, best, scattered, row_replaced, quantized, between_quantizers, dynamic),
    *(in_halves, from_a_sequence, looped, branched),
]


def made(draw):
    """Return a valid model from x to y, and to some values between."""
    make, x = Maker(draw), "x"
    for place in draw.integers(len(BLOCKS), size=draw.integers(2, 7)):
        x = BLOCKS[place](make, x)
    make.nodes.append(node("Neg", [x], ["y"], "last"))
    initializers = [numpy_helper.from_array(array, name) for name, array in make.constants.items()]
    inputs, outputs = [info("x", np.float32, ["n", WIDTH])], [info("y", np.float32, ["n", WIDTH])]
    graph = helper.make_graph(make.nodes, "model", inputs, outputs, initializers)
    version = int(draw.integers(13, 22))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)], ir_version=8)
    onnx.checker.check_model(model, full_check=True)
    return model


def any_of(draw, items):
    return items[draw.integers(len(items))]


def shuffle(model, draw):
    nodes = [copy.deepcopy(model.graph.node[place]) for place in draw.permutation(len(model.graph.node))]
    model.graph.ClearField("node")
    model.graph.node.extend(nodes)


def to_constant_node(model, draw):
    given, tensors = {each.name for each in model.graph.input}, model.graph.initializer
    if places := [place for place, each in enumerate(tensors) if each.name not in given]:
        tensor = tensors.pop(any_of(draw, places))
        model.graph.node.append(node("Constant", [], [tensor.name], value=tensor))


def to_sparse(model, draw):
    for tensor in model.graph.initializer:
        array = numpy_helper.to_array(tensor)
        if array.ndim == 2 and array.dtype == np.int8:
            values = numpy_helper.from_array(array[array != 0], tensor.name)
            at = numpy_helper.from_array(np.flatnonzero(array).astype(np.int64), f"{tensor.name} at")
            model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, at, array.shape))
            model.graph.initializer.remove(tensor)
            return


def to_default(model, draw):
    """Make an initializer the default of an input."""
    given = {each.name for each in model.graph.input}
    if tensors := [each for each in model.graph.initializer if each.name not in given]:
        each = any_of(draw, tensors)
        model.graph.input.append(helper.make_tensor_value_info(each.name, each.data_type, each.dims))


def old_ir(model, draw):
    """Before IR 4, initializers had to be inputs: here some are not."""
    model.ir_version = 3


def identities(model, draw):
    """Put a chain of Identity on the way to a reader."""
    reader = any_of(draw, model.graph.node)
    places = [place for place, name in enumerate(reader.input) if name]
    if places:
        place = any_of(draw, places)
        last = reader.input[place]
        for number in range(draw.integers(1, 4)):
            name = f"{reader.output[0]} by way of {number} {len(model.graph.node)}"
            model.graph.node.append(node("Identity", [last], [name]))
            last = name
        reader.input[place] = last


def rename(model, draw):
    """Give values names that no programming language allows."""
    style = any_of(draw, ["/a/{}:0", "{} ü", "0{}", " {}", "model.{}[1]"])
    results = {name for each in model.graph.node for name in each.output if name}
    names = {name: style.format(name) for name in results - {each.name for each in model.graph.output}}

    def change(graph):
        for each in graph.node:
            for field in (each.input, each.output):
                field[:] = [names.get(name, name) for name in field]
            for attribute in each.attribute:
                change(attribute.g)

    change(model.graph)
    for each in model.graph.value_info:
        each.name = names.get(each.name, each.name)


def known_types(model, draw):
    """Write the types of values, some of them twice."""
    found = shape_inference.infer_shapes(model).graph.value_info
    known = {each.name for each in model.graph.value_info}
    for each in found:
        if each.name not in known:
            model.graph.value_info.extend([each] * int(draw.integers(3)))


def no_imports(model, draw):
    """Use ONNX Runtime's operators without their import."""
    reader = any_of(draw, [each for each in model.graph.node if each.op_type in ("Neg", "Moved")])
    name = f"{reader.input[0]} halved {len(model.graph.node)}"
    model.graph.node.append(node("QuickGelu", [reader.input[0]], [name], domain="com.microsoft", alpha=0.0))
    reader.input[0] = name


def long_domain(model, draw):
    any_of(draw, model.graph.node).domain = "ai.onnx"


def long_import(model, draw):
    for each in model.opset_import:
        each.domain = each.domain or "ai.onnx"


def other_imports(model, draw):
    model.opset_import.extend([helper.make_opsetid("ai.onnx.ml", 3), helper.make_opsetid("of.nobody", 7)])


def empty_names(model, draw):
    """Write optional inputs at the end as empty names."""
    for each in model.graph.node:
        if each.op_type == "Clip" and len(each.input) == 2:
            each.input.append("")
        if each.op_type == "MatMulInteger":
            each.input.extend([""] * (4 - len(each.input)))


def in_a_function(model, draw):
    """Move a node into a function of the model."""
    found = [each for each in model.graph.node if each.op_type in ("Neg", "Relu", "Abs") and not each.domain]
    if found and not model.functions:
        moved = any_of(draw, found)
        imports = [each for each in model.opset_import if not each.domain]
        inner = node(moved.op_type, ["a"], ["b"])
        model.functions.append(helper.make_function("of.mine", "Moved", ["a"], ["b"], [inner], imports))
        model.opset_import.append(helper.make_opsetid("of.mine", 1))
        moved.op_type, moved.domain = "Moved", "of.mine"


def more_outputs(model, draw):
    """Let values between, an input or a constant be results, too."""
    known = {each.name for each in model.graph.output}
    names = {name for each in model.graph.node for name in each.output if name}
    names |= {each.name for each in (*model.graph.initializer, *model.graph.input)}
    name = any_of(draw, sorted(names - known))
    model.graph.output.append(onnx.ValueInfoProto(name=name))


def unused(model, draw):
    number = len(model.graph.node)
    array = draw.standard_normal((3, 2))
    model.graph.initializer.append(numpy_helper.from_array(array, f"unused {number}"))
    model.graph.node.append(node("Abs", ["x"], [f"read by none {number}"]))
    model.graph.node.append(node("TopK", ["x", f"unused k {number}"], [f"a {number}", f"b {number}"]))
    model.graph.initializer.append(numpy_helper.from_array(np.array([1]), f"unused k {number}"))


def clear_shape(model, draw):
    any_of(draw, [*model.graph.input, *model.graph.output]).type.tensor_type.ClearField("shape")


def clear_type(model, draw):
    any_of(draw, model.graph.output).ClearField("type")


def free_sizes(model, draw):
    for each in (*model.graph.input, *model.graph.output):
        for size in each.type.tensor_type.shape.dim:
            if size.dim_param:
                any_of(draw, [size.Clear, lambda size=size: setattr(size, "dim_value", -1), lambda: None])()


def clear_names(model, draw):
    for each in model.graph.node:
        each.name = any_of(draw, ["", each.name])


def clear_name(model, draw):
    model.graph.ClearField("name")


def described(model, draw):
    model.doc_string = model.graph.doc_string = model.graph.node[0].doc_string = "words"
    model.metadata_props.add(key="author", value="nobody")


CHANGES = [
    *(known_types, shuffle, to_constant_node, to_sparse, to_default, old_ir, identities, rename, no_imports),
    *(long_domain, long_import, other_imports, empty_names, in_a_function, more_outputs, unused, clear_shape),
    *(clear_type, free_sizes, clear_names, clear_name, described),
]


def theirs(model):
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def check(seed):
    """Compare the answers to one model; return whether ONNX Runtime runs it."""
    draw = np.random.default_rng(seed)
    model = made(draw)
    for place in sorted(draw.permutation(len(CHANGES))[: draw.integers(1, 7)], key=bool):  # types are known at first
        CHANGES[place](model, draw)
    x = draw.integers(-9, 10, (draw.integers(1, 6), WIDTH)).astype(np.float32)
    feeds = {"x": any_of(draw, [x, x.tolist(), np.asfortranarray(x), [*x]])}
    try:
        wanted = theirs(model).run(None, feeds)
    except Exception:  # ONNX Runtime's errors have no class in common
        return False
    nodes = [each.name for each in model.graph.node if each.op_type in TAKEN and each.name]
    some = [name for name in nodes if draw.integers(2)]
    for take in ("all", any_of(draw, ["auto", some])):
        found = InferenceSession(model.SerializeToString(), take=take).run(None, feeds)
        for mine, right in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(mine, right, strict=True)
    return True


@pytest.mark.parametrize("seed", range(12))
def test_what_onnx_runtime_runs_is_run(seed):
    check(seed)


@pytest.mark.slow
def test_many_models():
    assert sum(map(check, range(12, 132))) > 90
