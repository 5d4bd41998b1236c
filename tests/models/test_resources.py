import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dx_models import Save, buffer, faults as faults_of, zeros

from dmlcpu.batch import load_model
from dmlcpu.models.resources import Buffer


def load(save: Save, **resources: Any) -> dict[str, Buffer]:
    return load_model(save({"resources": resources, "dispatchables": {}, "commands": []})).buffers


def start(save: Save, entry: dict[str, Any]) -> np.ndarray:
    """Return a buffer's initial values, read from the memory it gets."""
    made = load(save, A=entry)["A"]
    memory = made.allocate()
    assert memory.size == made.size
    assert made.size % 4 == 0
    assert memory.ctypes.data % 64 == 0
    assert not memory[made.initial.nbytes :].any()
    return memory[: made.initial.nbytes].view(made.initial.dtype)


def faults(save: Save, entry: dict[str, Any]) -> list[str]:
    path = save({"resources": {"A": entry}, "dispatchables": {}, "commands": []})
    return [fault.removeprefix("$.resources.A.") for fault in faults_of(path)]


INTEGERS = [(f"{u}INT{bits}", np.dtype(f"{u.lower()}int{bits}")) for u in ("", "U") for bits in (8, 16, 32, 64)]
FLOATS = [(f"FLOAT{bits}", np.dtype(f"float{bits}")) for bits in (16, 32, 64)]


@pytest.mark.parametrize(("data_type", "dtype"), INTEGERS)
def test_list_of_integers(save: Save, data_type: str, dtype: np.dtype) -> None:
    values = [int(np.iinfo(dtype).min), 0, 1, int(np.iinfo(dtype).max)]
    got = start(save, buffer(f"DML_TENSOR_DATA_TYPE_{data_type}", values))
    assert got.dtype == dtype
    assert got.tolist() == values


@pytest.mark.parametrize(("data_type", "dtype"), FLOATS)
def test_list_of_floats(save: Save, data_type: str, dtype: np.dtype) -> None:
    largest = float(np.finfo(dtype).max)
    got = start(save, buffer(data_type, [1, -2.5, 1 / 3, largest, "nan", "Inf", "-inf"]))
    assert got.dtype == dtype
    np.testing.assert_array_equal(got, np.array([1, -2.5, 1 / 3, largest, np.nan, np.inf, -np.inf], dtype))


def test_largest_float_as_it_is_usually_written(save: Save) -> None:
    # Rounded up in the last digit: larger than the largest number, and still nearest to it.
    assert start(save, buffer("FLOAT32", [3.4028235e38]))[0] == np.finfo(np.float32).max
    assert start(save, buffer("FLOAT16", [65519]))[0] == 65504


def test_constant(save: Save) -> None:
    assert start(save, buffer("INT16", {"valueCount": 3, "value": -7})).tolist() == [-7, -7, -7]
    assert start(save, buffer("FLOAT16", {"valueCount": 2, "value": "-inf"})).tolist() == [-np.inf, -np.inf]


def test_constants_take_memory_only_when_the_model_runs(save: Save) -> None:
    made = load(save, A=zeros("FLOAT64", 4294967295))["A"]
    assert made.size == 8 * 4294967295
    assert made.initial.strides == (0,)


@pytest.mark.parametrize(
    ("data_type", "first", "delta", "values"),
    [
        ("FLOAT32", 1, 2.5, [1, 3.5, 6, 8.5]),
        ("UINT8", 252, 1, [252, 253, 254, 255]),
        ("INT8", 100, -50, [100, 50, 0, -50]),
        ("INT64", -(2**63), 2**62, [-(2**63), -(2**62) * 1, 0, 2**62]),
        ("UINT64", 0, 2**62, [0, 2**62, 2**63, 2**62 * 3]),
        ("FLOAT64", "inf", 1, [np.inf] * 4),
        ("FLOAT32", 5, 0, [5, 5, 5, 5]),
    ],
)
def test_sequence(save: Save, data_type: str, first: Any, delta: Any, values: list[Any]) -> None:
    entry = buffer(data_type, {"valueCount": 4, "valueStart": first, "valueDelta": delta})
    assert start(save, entry).tolist() == values


def test_sequences_take_memory_only_when_the_model_runs(save: Save) -> None:
    values = {"valueCount": 4294967295, "valueStart": 0, "valueDelta": 1}
    made = load(save, A=buffer("UINT64", values))["A"]
    assert made.size == 8 * 4294967295
    assert made.initial.strides == (0,)


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_sequences_add_up_in_their_own_type(save: Save, dtype: Any) -> None:
    got = start(save, buffer(np.dtype(dtype).name.upper(), {"valueCount": 100, "valueStart": 0, "valueDelta": 0.1}))
    value, expected = dtype(0), []
    for _ in range(100):
        expected.append(value)
        value = dtype(value + dtype(0.1))
    np.testing.assert_array_equal(got, np.array(expected, dtype))


def test_typed_list(save: Save) -> None:
    entry = buffer(
        "UNKNOWN",
        [
            {"name": "count", "type": "UINT32", "value": 6},
            {"type": "DML_TENSOR_DATA_TYPE_UINT8", "value": 255},
            {"name": "alpha", "type": "FLOAT32", "value": 1.5},
        ],
        sizeInBytes=256,
    )
    made = load(save, A=entry)["A"]
    assert made.size == 256
    assert made.initial.tobytes() == np.uint32(6).tobytes() + b"\xff" + np.float32(1.5).tobytes()
    del entry["initialValuesDataType"]  # a missing type means UNKNOWN
    assert load(save, A=entry)["A"].initial.tobytes() == made.initial.tobytes()


@pytest.mark.parametrize(
    ("values", "more", "size", "count"),
    [
        ([1, 2, 3], {}, 4, 3),
        ([1, 2, 3, 4], {}, 4, 4),
        ([1, 2, 3], {"sizeInBytes": 3}, 4, 3),
        ([1, 2, 3], {"sizeInBytes": 9}, 12, 9),
        ([1], {"type": "buffer", "sizeInBytes": 64}, 64, 64),
    ],
)
def test_size(save: Save, values: list[int], more: dict[str, Any], size: int, count: int) -> None:
    made = load(save, A=buffer("UINT8", values, **more))["A"]
    assert (made.size, made.count) == (size, count)
    assert made.allocate().tolist() == values + [0] * (size - len(values))


@pytest.mark.parametrize("name", ["int8", "uint16", "int64", "float16", "float32", "float64", ">f4", ">i8"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_npy_file(save: Save, tmp_path: Path, name: str, order: Any) -> None:
    array = np.asarray(np.arange(6).reshape(2, 3), name, order=order)
    np.save(tmp_path / "models" / "x.npy", array)
    got = start(save, {"initialValues": {"sourcePath": "x.npy"}})
    assert got.dtype == array.dtype.newbyteorder("=")
    assert got.tolist() == [0, 1, 2, 3, 4, 5]


def test_npy_file_of_bools_holds_uint8(save: Save, tmp_path: Path) -> None:
    np.save(tmp_path / "models" / "x.npy", np.array([True, False]))
    assert start(save, buffer("UINT8", {"sourcePath": "x.npy"})).tolist() == [1, 0]


@pytest.mark.parametrize("name", ["x.dat", "x.bin", "X.BIN"])
def test_raw_file(save: Save, tmp_path: Path, name: str) -> None:
    (tmp_path / "models" / name).write_bytes(np.array([1, 2, 3], np.int16).tobytes())
    assert start(save, buffer("INT16", {"sourcePath": name})).tolist() == [1, 2, 3]


def test_files_are_found_beside_the_model_then_in_the_current_directory(save: Save, tmp_path: Path) -> None:
    entry = {"initialValues": {"sourcePath": "x.npy"}}
    np.save(tmp_path / "cwd" / "x.npy", np.array([1]))
    assert start(save, entry).tolist() == [1]
    np.save(tmp_path / "models" / "x.npy", np.array([2]))  # beside the model: comes first
    assert start(save, entry).tolist() == [2]
    np.save(tmp_path / "x.npy", np.array([3]))
    assert start(save, {"initialValues": {"sourcePath": str(tmp_path / "x.npy")}}).tolist() == [3]


UINT8, INT8 = "integers from 0 to 255 (UINT8)", "integers from -128 to 127 (INT8)"
FLOAT16 = 'numbers in the range of FLOAT16, "nan", "inf" or "-inf"'
ITEM = 'an object {"name": ..., "type": ..., "value": ...}'
TYPES = "FLOAT32, FLOAT16, UINT32, UINT16, UINT8, INT32, INT16, INT8, FLOAT64, UINT64, INT64"


FAULTS = [
    (buffer("FLOAT8", [1]), f"initialValuesDataType: 'FLOAT8'; allowed: {TYPES}, UNKNOWN"),
    (buffer("UINT4", [1]), f"initialValuesDataType: 'UINT4'; allowed: {TYPES}, UNKNOWN"),
    (buffer("UNKNOWN", [1]), f"initialValuesDataType: 'UNKNOWN'; allowed: {TYPES}"),
    ({"initialValues": [1]}, f"initialValuesDataType: missing; allowed: {TYPES}"),
    ({"initialValues": {"valueCount": 1, "value": 1}}, f"initialValuesDataType: missing; allowed: {TYPES}"),
    (buffer("UINT8", []), "initialValues: an empty list; allowed: at least one value"),
    (
        buffer("UINT8", [1, 256, -1, 2.5, 2.0, "nan", True, None, [1]]),
        *(
            f"initialValues[{i}]: {found}; allowed: {UINT8}"
            for i, found in enumerate(["256", "-1", "2.5", "2.0", "'nan'", "true", "null", "a list of 1"], start=1)
        ),
    ),
    (
        buffer("FLOAT16", [1, 65520, -1e9, "infinity", False]),
        *(
            f"initialValues[{i}]: {found}; allowed: {FLOAT16}"
            for i, found in enumerate(["65520", "-1000000000.0", "'infinity'", "false"], start=1)
        ),
    ),
    (buffer("FLOAT32", [3.5e38]), f"initialValues[0]: 3.5e+38; allowed: {FLOAT16.replace('16', '32')}"),
    (
        buffer("INT8", [200] * 12),
        *(f"initialValues[{i}]: 200; allowed: {INT8}" for i in range(10)),
        f"initialValues[10]: 12 such values in all; allowed: {INT8}",
    ),
    (buffer("INT8", {"valueCount": 2, "value": 128}), f"initialValues.value: 128; allowed: {INT8}"),
    (
        buffer("UINT8", {"valueCount": 2, "valueStart": 0.5, "valueDelta": -1}),
        f"initialValues.valueStart: 0.5; allowed: {UINT8}",
        f"initialValues.valueDelta: -1; allowed: {UINT8}",
    ),
    (
        buffer("UINT8", {"valueCount": 257, "valueStart": 0, "valueDelta": 1}),
        f"initialValues: a sequence that ends with 256; allowed: {UINT8}",
    ),
    (
        buffer("FLOAT16", {"valueCount": 3, "valueStart": 0, "valueDelta": 50000}),
        f"initialValues: a sequence that ends with 100000.0; allowed: {FLOAT16}",
    ),
    (buffer("UINT32", [1, 2], sizeInBytes=7), "sizeInBytes: 7; allowed: at least 8, the bytes of the initial values"),
    *(
        (buffer("UINT8", [1], sizeInBytes=size), f"sizeInBytes: {size}; allowed: an integer from 1 to 34359738368")
        for size in (2**35 + 1, 2**62, 2**63, 1e300)
    ),
    (
        buffer(
            "UNKNOWN", [{"type": "INT4", "value": 1}, {"type": "UINT8", "value": -1}, 5, {"value": 1}, {"type": "INT8"}]
        ),
        f"initialValues[0].type: 'INT4'; allowed: {TYPES}",
        f"initialValues[1].value: -1; allowed: {UINT8}",
        f"initialValues[2]: 5; allowed: {ITEM}",
        f"initialValues[3]: an object; allowed: {ITEM}",
        f"initialValues[4]: an object; allowed: {ITEM}",
    ),
    (
        buffer("UINT8", {"sourcePath": "cat.png"}),
        "initialValues.sourcePath: 'cat.png'; allowed: a .npy, .dat or .bin file",
    ),
]


@pytest.mark.parametrize("case", FAULTS)
def test_an_entry_has_these_faults(save: Save, case: tuple[Any, ...]) -> None:
    entry, *expected = case
    assert faults(save, entry) == expected


def test_a_missing_file_is_a_fault(save: Save, tmp_path: Path) -> None:
    assert faults(save, {"initialValues": {"sourcePath": "x.npy"}}) == [
        "initialValues.sourcePath: 'x.npy', no such file; "
        f"allowed: a file, relative to the model's folder {tmp_path / 'models'} or the current directory"
    ]


@pytest.mark.parametrize("name", ["no/such/folder.npy", "x" * 5000 + ".npy", "\0.npy"])
def test_an_impossible_path_is_a_missing_file(save: Save, name: str) -> None:
    (fault,) = faults(save, {"initialValues": {"sourcePath": name}})
    assert fault.startswith(
        f"initialValues.sourcePath: {name!r}, no such file; allowed: a file, relative to the model's folder "
    )


@pytest.mark.parametrize(
    ("data_type", "array", "expected"),
    [
        ("UNKNOWN", np.zeros(2, np.complex64), f"initialValues.sourcePath: 'x.npy' of complex64; allowed: {TYPES}"),
        ("FLOAT32", np.zeros(2), "initialValuesDataType: FLOAT32; allowed: FLOAT64, the type of 'x.npy'"),
        ("UNKNOWN", np.zeros((2, 0)), "initialValues.sourcePath: 'x.npy' of shape (2, 0); allowed: at least one value"),
    ],
)
def test_a_npy_file_of_another_type_or_without_values_is_a_fault(
    save: Save, tmp_path: Path, data_type: str, array: np.ndarray, expected: str
) -> None:
    np.save(tmp_path / "models" / "x.npy", array)
    assert faults(save, buffer(data_type, {"sourcePath": "x.npy"})) == [expected]


def npy(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array, allow_pickle=True)
    return file.getvalue()


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b"", "a file of 0 bytes; allowed: at least 10, where a header begins"),
        (npy(np.arange(100))[:9], "a file of 9 bytes; allowed: at least 10"),
        (b"no such magic", "a file that does not begin as .npy files do; allowed: "),
        (npy(np.arange(100))[:-1], "799 bytes of elements; allowed: 800, as its header says"),
        (npy(np.array([{}])), "Python objects; allowed: elements of fixed size"),
    ],
)
def test_a_npy_file_that_cannot_be_read_is_a_fault(save: Save, tmp_path: Path, content: bytes, found: str) -> None:
    (tmp_path / "models" / "x.npy").write_bytes(content)
    (fault,) = faults(save, {"initialValues": {"sourcePath": "x.npy"}})
    assert fault.startswith(f"initialValues.sourcePath: 'x.npy': {found}")


def test_no_memory_for_a_file_is_a_fault(save: Save, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(path: Path) -> None:
        raise MemoryError

    np.save(tmp_path / "models" / "x.npy", np.arange(3))
    monkeypatch.setattr("dmlcpu.models.resources.read", fail)
    assert faults(save, {"initialValues": {"sourcePath": "x.npy"}}) == [
        "initialValues.sourcePath: 'x.npy', which cannot be read: not enough memory; allowed: a .npy file"
    ]


@pytest.mark.parametrize(
    ("data_type", "nbytes", "expected"),
    [
        (
            "FLOAT32",
            7,
            "initialValues.sourcePath: 'x.bin' of 7 bytes; allowed: a positive multiple of 4 bytes (FLOAT32)",
        ),
        ("UINT8", 0, "initialValues.sourcePath: 'x.bin' of 0 bytes; allowed: a positive multiple of 1 bytes (UINT8)"),
        ("UNKNOWN", 4, f"initialValuesDataType: no type; allowed: {TYPES} (raw files have none)"),
    ],
)
def test_a_raw_file_of_another_size_or_without_a_type_is_a_fault(
    save: Save, tmp_path: Path, data_type: str, nbytes: int, expected: str
) -> None:
    (tmp_path / "models" / "x.bin").write_bytes(bytes(nbytes))
    assert faults(save, buffer(data_type, {"sourcePath": "x.bin"})) == [expected]


def test_a_folder_in_place_of_a_file_is_a_fault(save: Save, tmp_path: Path) -> None:
    (tmp_path / "models" / "x.bin").mkdir()
    (fault,) = faults(save, buffer("UINT8", {"sourcePath": "x.bin"}))
    assert fault.startswith("initialValues.sourcePath: 'x.bin', which cannot be read: ")
