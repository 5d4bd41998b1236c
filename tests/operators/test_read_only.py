"""Read-only inputs, as ONNX initializers and mapped files are, are read by the kernels that are compiled already."""

import numpy as np
import pytest
from operators.bound_calls import CALLS, function
from samples import as_tuple, assert_same_bits, read_only

from dmlcpu.kernels import registry

ONE = np.array([0.5], np.float32)
OF_ONE_ELEMENT = {
    "quantize_linear": [np.array(3, np.float32), ONE, np.array([5], np.uint8)],
    "dequantize_linear": [np.array(3, np.uint8), ONE, np.array([5], np.uint8)],
    "dynamic_quantize_linear": [np.array(3, np.float32)],
    "scatter_nd": [np.zeros(3, np.float32), np.array([1]), np.array(3, np.float32)],
}
EVERY = [(name, *call()) for name, call in CALLS.items()] + [(name, args, {}) for name, args in OF_ONE_ELEMENT.items()]


def compiled(operator):
    return sum(len(row.kernel.share.signatures) for row in registry.available(operator))


def frozen(value):
    return read_only(value) if isinstance(value, np.ndarray) else value


@pytest.mark.parametrize(("operator", "args", "options"), EVERY)
def test_read_only_inputs_compile_nothing_more(operator, args, options):
    expected, before = as_tuple(function(operator)(*args, **options)), compiled(operator)
    assert before
    all_frozen = [frozen(each) for each in args], {name: frozen(each) for name, each in options.items()}
    one_frozen = [([*args[:i], frozen(args[i]), *args[i + 1 :]], options) for i in range(len(args))]
    for given, named in (all_frozen, *one_frozen):
        assert_same_bits(as_tuple(function(operator)(*given, **named)), expected)
    assert compiled(operator) == before
