"""Changes of models that ONNX's IR or ONNX Runtime allows. Some make a model that ONNX Runtime refuses."""

import copy

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper, shape_inference  # noqa: E402
from onnx_parts import node  # noqa: E402

STYLES = "/a/{}:0", "{} ü", "0{}", " {}", "model.{}[1]", '"{}"', "{}\n", "{}'", "%{}%s", "日{}", "{}" + "_" * 300


def any_of(draw, items):
    return items[draw.integers(len(items))]


def bodies(graph):
    """Yield the branches and loops in a graph, at any depth."""
    for each in graph.node:
        for attribute in each.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield attribute.g
                yield from bodies(attribute.g)


def all_nodes(model):
    graphs = [model.graph, *model.functions, *bodies(model.graph)]
    graphs += [body for function in model.functions for body in bodies(function)]
    return [each for graph in graphs for each in graph.node]


def first_input(model):
    """Return the name of x, which another change may have renamed or moved."""
    tensors = {each.name for each in model.graph.initializer}
    return next(each.name for each in model.graph.input if each.name not in tensors and "unread" not in each.name)


def unreplaced(model):
    """Return the initializers that no input replaces."""
    given = {each.name for each in model.graph.input}
    return [each for each in model.graph.initializer if each.name not in given]


def shuffle(model, draw):
    for field in ("node", "initializer", "input"):
        old = getattr(model.graph, field)
        new = [copy.deepcopy(old[place]) for place in draw.permutation(len(old))]
        model.graph.ClearField(field)
        getattr(model.graph, field).extend(new)


def to_constant_node(model, draw):
    if tensors := unreplaced(model):
        tensor = any_of(draw, tensors)
        model.graph.node.append(node("Constant", [], [tensor.name], value=tensor))
        model.graph.initializer.remove(tensor)


def to_constants_with_lists(model, draw):
    """Write numbers and short rows as attributes of Constant."""
    kinds = {TensorProto.FLOAT: "value_float", TensorProto.INT64: "value_int"}
    for tensor in unreplaced(model):
        array = numpy_helper.to_array(tensor)
        if tensor.data_type in kinds and array.ndim < 2:
            name = kinds[tensor.data_type] + "s" * array.ndim
            model.graph.node.append(node("Constant", [], [tensor.name], **{name: array.tolist()}))
            model.graph.initializer.remove(tensor)


def to_sparse(model, draw):
    for tensor in model.graph.initializer:
        array = numpy_helper.to_array(tensor)
        if array.ndim == 2 and array.dtype == np.int8:
            places = any_of(draw, [np.flatnonzero(array), np.argwhere(array)]).astype(np.int64)
            values = numpy_helper.from_array(array[array != 0], tensor.name)
            at = numpy_helper.from_array(places, f"{tensor.name} at")
            model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, at, array.shape))
            model.graph.initializer.remove(tensor)
            return


def to_default(model, draw):
    """Make an initializer the default of an input."""
    if tensors := unreplaced(model):
        each = any_of(draw, tensors)
        model.graph.input.append(helper.make_tensor_value_info(each.name, each.data_type, each.dims))


def into_a_body(model, draw):
    """Move a constant into a branch or loop that reads it: as an initializer, or as a node."""
    tensors = {each.name: each for each in unreplaced(model)}
    for body in bodies(model.graph):
        for reader in body.node:
            for place, name in enumerate(reader.input):
                if name in tensors:
                    inside = copy.deepcopy(tensors[name])
                    inside.name = reader.input[place] = f"{name} inside {reader.output[0]}"
                    if draw.integers(2):
                        body.initializer.append(inside)
                    else:
                        body.node.insert(0, node("Constant", [], [inside.name], value=inside))
                    return


def typed_data(model, draw):
    """Write elements in the fields of their types, not as bytes."""
    for tensor in model.graph.initializer:
        values = numpy_helper.to_array(tensor).ravel().tolist()
        tensor.CopyFrom(helper.make_tensor(tensor.name, tensor.data_type, tensor.dims, values))


def repeated_constant(model, draw):
    if tensors := [*model.graph.initializer]:
        model.graph.initializer.append(any_of(draw, tensors))


def old_ir(model, draw):
    """Before IR 4, initializers had to be inputs: here some are not."""
    model.ir_version = 3


def another_ir(model, draw):
    model.ir_version = int(draw.integers(4, 14))


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
    """Give values, constants, or inputs and outputs, names that no programming language allows."""
    style, graph = any_of(draw, STYLES), model.graph
    ends = {each.name for each in (*graph.input, *graph.output)}
    tensors = {each.name for each in (*graph.initializer, *(each.values for each in graph.sparse_initializer))}
    results = {name for each in graph.node for name in each.output if name}
    names = {name: style.format(name) for name in any_of(draw, [results - ends, tensors - ends, ends])}

    def change(nodes):
        for each in nodes:
            for field in (each.input, each.output):
                field[:] = [names.get(name, name) for name in field]
            for attribute in each.attribute:
                change(attribute.g.node)

    change(graph.node)
    tensors = (*graph.initializer, *(each.values for each in graph.sparse_initializer))
    for each in (*graph.value_info, *graph.input, *graph.output, *tensors):
        each.name = names.get(each.name, each.name)


def known_types(model, draw):
    """Write the types of values, some of them twice."""
    found = shape_inference.infer_shapes(model).graph.value_info
    known = {each.name for each in model.graph.value_info}
    for each in found:
        if each.name not in known:
            model.graph.value_info.extend([each] * int(draw.integers(3)))


def wrong_types(model, draw):
    """Write types without shapes, with other sizes, and of values that do not exist."""
    known_types(model, draw)
    for each in model.graph.value_info:
        shape = each.type.tensor_type.shape
        if shape.dim and draw.integers(2):
            size = any_of(draw, shape.dim)
            any_of(draw, [size.Clear, lambda size=size: setattr(size, "dim_param", "another")])()
        elif draw.integers(2):
            each.type.tensor_type.ClearField("shape")
    model.graph.value_info.append(helper.make_tensor_value_info("nowhere", TensorProto.INT4, [3, "n"]))


def no_imports(model, draw):
    """Use ONNX Runtime's operators without their import."""
    if readers := [each for each in model.graph.node if each.op_type in ("Neg", "Moved")]:
        reader = any_of(draw, readers)
        name = f"{reader.input[0]} halved {len(model.graph.node)}"
        model.graph.node.append(node("QuickGelu", [reader.input[0]], [name], domain="com.microsoft", alpha=0.0))
        reader.input[0] = name


def long_domain(model, draw):
    """Write ONNX's domain in full."""
    for each in model.graph.node:
        if not each.domain and not draw.integers(3):
            each.domain = "ai.onnx"


def long_import(model, draw):
    for each in model.opset_import:
        each.domain = each.domain or "ai.onnx"


def other_imports(model, draw):
    imports = model.opset_import
    imports.extend(helper.make_opsetid(*each) for each in (("ai.onnx.ml", 3), ("of.nobody", 7)) if draw.integers(2))


def repeated_import(model, draw):
    again = helper.make_opsetid(any_of(draw, ["", "ai.onnx"]), int(draw.integers(13, 22)))
    model.opset_import.insert(int(draw.integers(len(model.opset_import) + 1)), again)


def import_of_others_alone(model, draw):
    """Leave ONNX's version to ONNX Runtime."""
    for each in [*model.opset_import]:
        if each.domain in ("", "ai.onnx"):
            model.opset_import.remove(each)
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))


def functions_of_another_version(model, draw):
    for function in model.functions:
        for each in function.opset_import:
            if not each.domain:
                each.version += int(draw.integers(-1, 2))


def empty_names(model, draw):
    """Write optional inputs at the end as empty names."""
    for each in model.graph.node:
        if each.op_type == "Clip" and len(each.input) == 2:
            each.input.append("")
        if each.op_type == "MatMulInteger":
            each.input.extend([""] * (4 - len(each.input)))


def unnamed_results(model, draw):
    """Leave out the name of a last result that is read by none."""
    read = {name for each in all_nodes(model) for name in each.input} | {each.name for each in model.graph.output}
    for each in model.graph.node:
        if each.op_type in ("Dropout", "Best", "TopK")[: draw.integers(1, 4)] and each.output[-1] not in read:
            each.output[-1] = ""
            if draw.integers(2):
                del each.output[-1]


def in_a_function(model, draw):
    """Move a node into a function of the model."""
    found = [each for each in model.graph.node if each.op_type in ("Neg", "Relu", "Abs") and not each.domain]
    if found and not any(each.name == "Moved" for each in model.functions):
        moved = any_of(draw, found)
        imports = [each for each in model.opset_import if not each.domain]
        inner = node(moved.op_type, ["a"], ["b"])
        model.functions.append(helper.make_function("of.mine", "Moved", ["a"], ["b"], [inner], imports))
        model.opset_import.append(helper.make_opsetid("of.mine", 1))
        moved.op_type, moved.domain = "Moved", "of.mine"


def uncalled_function(model, draw):
    inner = node(any_of(draw, ["Neg", "Relu", "Unknown"]), ["a"], ["b"])
    imports = [each for each in model.opset_import if not each.domain]
    model.functions.append(helper.make_function("of.others", "Uncalled", ["a"], ["b"], [inner], imports))


def overloaded(model, draw):
    """Give functions and their calls the name of an overload, which IR 10 has."""
    model.ir_version, names = max(model.ir_version, 10), {each.name for each in model.functions}
    for each in model.functions:
        each.overload = "fast"
    for each in all_nodes(model):
        if each.op_type in names:
            each.overload = "fast"


def more_outputs(model, draw):
    """Let values between, an input or a constant be results, too."""
    known = {each.name for each in model.graph.output}
    names = {name for each in model.graph.node for name in each.output if name}
    names |= {each.name for each in (*model.graph.initializer, *model.graph.input)}
    name = any_of(draw, sorted(names - known))
    model.graph.output.append(onnx.ValueInfoProto(name=name))


def output_again(model, draw):
    """Let a result be one twice: under another name, or under its own."""
    given = any_of(draw, model.graph.output)
    if draw.integers(4):
        again = onnx.ValueInfoProto(name=f"{given.name} again {len(model.graph.node)}")
        model.graph.node.append(node("Identity", [given.name], [again.name]))
        model.graph.output.append(again)
    else:
        model.graph.output.append(given)


def unused(model, draw):
    number, x = len(model.graph.node), first_input(model)
    array = draw.standard_normal((3, 2))
    model.graph.initializer.append(numpy_helper.from_array(array, f"unused {number}"))
    model.graph.node.append(node("Abs", [x], [f"read by none {number}"]))
    model.graph.node.append(
        node("TopK", [x, f"unused k {number}"], [f"values read by none {number}", f"places read by none {number}"])
    )
    model.graph.initializer.append(numpy_helper.from_array(np.array([1]), f"unused k {number}"))


def unread_input(model, draw):
    kind = any_of(draw, [TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL])
    model.graph.input.append(helper.make_tensor_value_info(f"unread {len(model.graph.input)}", kind, [2]))


def clear_shape(model, draw):
    any_of(draw, [*model.graph.input, *model.graph.output]).type.tensor_type.ClearField("shape")


def clear_type(model, draw):
    any_of(draw, model.graph.output).ClearField("type")


def clear_types_of_bodies(model, draw):
    for body in bodies(model.graph):
        for each in body.output:
            each.ClearField("type")


def other_sizes(model, draw):
    """Let sizes be free, or have other names, or, of results, other numbers: ONNX Runtime warns, and runs."""
    for each in (*model.graph.input, *model.graph.output):
        ways = [("dim_value", -1), ("dim_param", "2*n + 1"), ("dim_param", ""), ("dim_param", "m")]
        ways += [("dim_value", 5)] if each in model.graph.output else []
        for size in each.type.tensor_type.shape.dim:
            if size.dim_param and draw.integers(3):
                setattr(size, *any_of(draw, ways))


def fixed_rows(model, draw):
    for each in model.graph.input:
        for size in each.type.tensor_type.shape.dim:
            if size.dim_param:
                size.dim_value = 3


def clear_names(model, draw):
    for each in all_nodes(model):
        each.name = any_of(draw, ["", each.name])


def same_names(model, draw):
    """Give nodes names that nodes of branches, functions and values have, too."""
    for graph in (model.graph, *model.functions, *bodies(model.graph)):
        for number, each in enumerate(graph.node):
            each.name = f"v{number}"


def clear_name(model, draw):
    model.graph.ClearField("name")


def written_defaults(model, draw):
    """Write attributes that have their default."""
    for each in all_nodes(model):
        if each.op_type == "TopK":
            known = {attribute.name for attribute in each.attribute}
            defaults = {"axis": -1, "largest": 1, "sorted": 1}
            each.attribute.extend(helper.make_attribute(*one) for one in defaults.items() if one[0] not in known)


def described(model, draw):
    """Write words, metadata, denotations and a producer, wherever the IR has a place for them."""
    graph = model.graph
    tensors = (*graph.initializer, *graph.node[0].attribute)
    for each in (model, graph, *graph.node, *graph.input, *graph.output, *tensors, *model.functions):
        each.doc_string = "words"
        if hasattr(each, "metadata_props"):
            each.metadata_props.add(key="author", value="nobody")
    for each in (*graph.input, *graph.output):
        if each.HasField("type"):
            each.type.denotation = "IMAGE"
        for size in each.type.tensor_type.shape.dim:
            size.denotation = "DATA_BATCH"
    model.producer_name, model.producer_version, model.domain, model.model_version = "a", "b", "c.d", 7
    graph.quantization_annotation.add(tensor_name=graph.output[0].name)


FIRST = known_types, wrong_types  # types are known before other changes
LATER = (
    *(shuffle, to_constant_node, to_constants_with_lists, to_sparse, to_default, into_a_body, typed_data),
    *(repeated_constant, old_ir, another_ir, identities, rename, no_imports, long_domain, long_import, other_imports),
    *(repeated_import, import_of_others_alone, functions_of_another_version, empty_names, unnamed_results),
    *(in_a_function, uncalled_function, overloaded, more_outputs, output_again, unused, unread_input, clear_shape),
    *(clear_type, clear_types_of_bodies, other_sizes, fixed_rows, clear_names, same_names, clear_name),
    *(written_defaults, described),
)
