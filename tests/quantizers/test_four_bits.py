"""Tensors of 4 bits: two elements in a byte, or an array of ml_dtypes."""

import contextlib
import io
import json
import os
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from desc_builders import tensor
from processes import run
from quantizers.test_descriptor_quantizers import SCALE, SCALES, X, blocked

import dmlcpu
from dmlcpu import reference
from dmlcpu.batch import load_model, run_model
from dmlcpu.errors import BindingError

ROOT = Path(__file__).parents[2]


def test_four_bits_in_every_form():
    zero = np.array([[1, -1]]).astype(ml_dtypes.int4)
    packed_zero = np.array([0xF1], np.uint8)
    quantize = dmlcpu.compile_operator(blocked(True, "FLOAT32", "FLOAT32", "INT4", "INT4"))
    expected = reference.quantize_linear(X, SCALES, zero)
    for each in (zero, packed_zero, packed_zero.tobytes(), bytearray(b"\xf1\x00")):
        found = quantize(input_tensor=X, quantization_tensors=[SCALES, each])
        assert found.tobytes() == bytes.fromhex("f870d312")
    out = np.zeros((1, 8), ml_dtypes.int4)
    assert quantize(input_tensor=X, quantization_tensors=[SCALES, zero], output_tensor=out) is out
    assert (out == expected).all()
    dequantize = dmlcpu.compile_operator(blocked(False, "INT4", "FLOAT32", "INT4", "FLOAT32"))
    for each in (out, bytes.fromhex("f870d312")):
        assert dequantize(input_tensor=each, quantization_tensors=[SCALES, packed_zero]).tolist() == X.tolist()
    with pytest.raises(
        BindingError, match=r"InputTensor is a buffer of 3 bytes; allowed: a contiguous 1-D buffer of uint8"
    ):
        dequantize(input_tensor=b"123", quantization_tensors=[SCALES, packed_zero])
    with pytest.raises(BindingError, match=r"InputTensor is an array of int4 and shape \(8,\)"):
        dequantize(input_tensor=out[0], quantization_tensors=[SCALES, packed_zero])


def test_bytes_of_4_bit_tensors_that_are_not_side_by_side_are_refused():
    quantize = dmlcpu.compile_operator(blocked(True, "FLOAT32", "FLOAT32", "INT4", "INT4"))
    dequantize = dmlcpu.compile_operator(blocked(False, "INT4", "FLOAT32", "INT4", "FLOAT32"))
    memory, zero = np.full(8, 7, np.uint8), b"\xf1"
    for view in (memory[::2], memory[3::-1]):
        with pytest.raises(BindingError, match="OutputTensor is a buffer that is not contiguous"):
            quantize(input_tensor=X, quantization_tensors=[SCALES, zero], output_tensor=view)
        with pytest.raises(BindingError, match="InputTensor is a buffer that is not contiguous"):
            dequantize(input_tensor=view, quantization_tensors=[SCALES, zero])
    assert memory.tolist() == [7] * 8


@pytest.mark.parametrize(("sizes", "strides"), [((1, 3), None), ((3, 5), None), ((2, 2), (8, 2))])
def test_bits_between_the_elements_of_a_new_4_bit_tensor_are_0(sizes, strides):
    y = dmlcpu.TensorDesc(dmlcpu.TensorDataType.UINT4, sizes=sizes, strides=strides)
    given = {"input_tensor": np.full(sizes, 15, np.float32), "quantization_tensors": [np.ones((1, 1), np.float32)]}
    quantize = dmlcpu.compile_operator(
        blocked(True, "FLOAT32", "FLOAT32", None, "UINT4", sizes, (1, 1), output_tensor=y)
    )
    used = sum(int(byte).bit_count() for byte in quantize(**given))
    memory = [np.full(quantize(**given).nbytes, 255, np.uint8) for _ in range(50)]  # for a new array to find
    del memory
    assert used == sum(int(byte).bit_count() for byte in quantize(**given)) == 4 * np.prod(sizes)


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("columns", [7, 64, 4096])
def test_packed_bytes_of_odd_rows_and_strides(threads, columns):
    """A row may end in the middle of a byte, and threads share none."""
    rng = np.random.default_rng(columns)
    x = rng.standard_normal((5, columns), dtype=np.float32) * 5
    expected = reference.quantize_linear(x, 1.0, out_dtype=ml_dtypes.int4)
    strides = (columns + 1, 1)
    desc = dmlcpu.QuantizeOperatorDesc(
        input_tensor=tensor("FLOAT32", 5, columns),
        quantization_type=SCALE,
        quantization_tensors=[tensor("FLOAT32", 1, 1)],
        output_tensor=tensor("INT4", 5, columns, strides=strides),
    )
    out = np.full(-(-(5 * columns + 4) // 2), 0xAA, np.uint8)
    with dmlcpu.runtime.threads.use_budget(threads, grain=1):
        found = dmlcpu.compile_operator(desc)(
            input_tensor=x, quantization_tensors=[np.ones((1, 1), np.float32)], output_tensor=out
        )
    bits = np.stack([out & 15, out >> 4], 1).reshape(-1)
    places = np.arange(5)[:, None] * strides[0] + np.arange(columns)
    assert np.shares_memory(found, out)
    assert (bits[places] == (expected.astype(int) & 15)).all()
    gaps = np.setdiff1d(np.arange(bits.size), places)
    assert (bits[gaps] == 0xA).all()
    back = dmlcpu.DequantizeOperatorDesc(
        input_tensor=desc.output_tensor,
        quantization_type=SCALE,
        quantization_tensors=desc.quantization_tensors,
        output_tensor=desc.input_tensor,
    )
    with dmlcpu.runtime.threads.use_budget(threads, grain=1):
        y = dmlcpu.compile_operator(back)(input_tensor=out, quantization_tensors=[np.ones((1, 1), np.float32)])
    assert (y == expected.astype(np.float32)).all()


FOUR_BITS = """
import numpy as np, ml_dtypes
from dmlcpu import QuantizationType, TensorDataType, compile_operator
from desc_builders import tensor
from quantizers.test_descriptor_quantizers import SCALES, X, blocked
from dmlcpu.runtime.compilation import can_compile

both = [SCALES, b"\\xf1"]
for kind in ("INT4", "UINT4"):
    y = compile_operator(blocked(True, "FLOAT32", "FLOAT32", kind, kind))(input_tensor=X, quantization_tensors=both)
    print(y.tobytes().hex())
    back = compile_operator(blocked(False, kind, "FLOAT32", kind, "FLOAT32"))
    print(back(input_tensor=y, quantization_tensors=both).tolist())
    loose = np.zeros((1, 8), kind.lower())
    zeros = np.array([[1, 3]]).astype(kind.lower())
    operator = compile_operator(blocked(True, "FLOAT32", "FLOAT32", kind, kind))
    print(operator(input_tensor=X, quantization_tensors=[SCALES, zeros], output_tensor=loose).astype(int).tolist())
print(can_compile())
"""


def test_four_bits_without_compilation():
    """The elements are taken apart in NumPy, with the same results."""
    path = os.pathsep.join(map(str, (ROOT, ROOT / "tests")))
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(FOUR_BITS, {})
    *compiled, yes = printed.getvalue().splitlines()
    *plain, no = run(FOUR_BITS, PYTHONPATH=path, NUMBA_DISABLE_JIT="1").splitlines()
    assert compiled == plain
    assert compiled[0] == "f870d312"
    assert (yes, no) == ("True", "False")


def test_model_with_a_tensor_of_four_bits(tmp_path):
    """A resource of bytes is its buffer."""
    desc = blocked(True, "FLOAT32", "FLOAT32", None, "INT4")
    model = {
        "resources": {
            "X": {"initialValuesDataType": "FLOAT32", "initialValues": X[0].tolist()},
            "S": {"initialValuesDataType": "FLOAT32", "initialValues": [0.5, 2]},
            "Y": {"initialValuesDataType": "UINT8", "initialValues": [0, 0, 0, 0]},
        },
        "dispatchables": {"quantize": desc.to_dict()},
        "commands": [
            {
                "type": "dispatch",
                "dispatchable": "quantize",
                "bindings": {"InputTensor": "X", "QuantizationTensors": ["S"], "OutputTensor": "Y"},
            }
        ],
    }
    path = tmp_path / "model.json"
    path.write_text(json.dumps(model), "utf-8")
    found = run_model(load_model(path))["Y"]
    bits = np.stack([found & 15, found >> 4], 1).reshape(1, -1)
    assert bits.tolist() == (reference.quantize_linear(X, SCALES, out_dtype=ml_dtypes.int4).astype(int) & 15).tolist()
