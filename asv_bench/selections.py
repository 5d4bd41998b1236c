"""Which cells the blocks of figures in the documentation show, and what they are called there."""

from typing import NamedTuple

MACHINE = "amd-epyc-family-25-model-17-2-cores"  # of most figures in texts; all machines have pages of their own
OTHER_MACHINE = "amd-epyc-family-25-model-1-2-cores"

# The tables of cells, in the order of a machine's page.
TITLES = {
    "top_k": "top_k",
    "top_k_sizes": "top_k: from small to large",
    "top_k_types": "top_k: types",
    "top_k_data": "top_k: kinds of data",
    "sort": "sort, argsort and sort_with_indices",
    "sort_data": "sort_with_indices: kinds of data",
    "scatter_nd": "scatter_nd",
    "scatter_nd_types": "scatter_nd: types",
    "scatter_nd_grid": "scatter_nd: lengths of slices, parts and repeats",
    "scatter_elements": "scatter_elements",
    "gather_elements": "gather_elements",
    "argmax": "argmax",
    "at": "add_at and its like",
    "quantized_matmul": "quantized_matmul",
    "quantized_matmul_sizes": "quantized_matmul: from small to large",
    "quantized_matmul_parameters": "quantized_matmul: signs and parameters",
    "matmul_integer": "matmul_integer",
    "matmul_integer_to_float": "matmul_integer_to_float",
    "dynamic_quantize_matmul": "dynamic_quantize_matmul",
    "matmul_top_k": "matmul_top_k",
    "quantize_linear": "Quantizers",
    "torch": "Calls of PyTorch's programs",
    "threads": "Calls that use several threads",
    "tiny": "Tiny calls",
    "search": "Search among int8 vectors",
    "onnx": "ONNX models",
    "dask": "Dask arrays",
    "numba": "Rows in functions that Numba compiles",
    "callers": "Calls of many Python threads",
}


EVERY = "every table"
CALLERS = "callers"  # the regime, and the table, of calls that several Python threads make


class Row(NamedTuple):
    label: str
    table: str
    case: str


class Selection(NamedTuple):
    """Chosen rows, or all of a table, with the times of contenders, or times of dmlcpu and ratios to it."""

    rows: list[Row] | str  # or the name of a table, or EVERY
    times: tuple[str, ...] = ("dmlcpu",)
    ratios: tuple[str, ...] = ()  # of these contenders' times to that of the last one in `times`
    head: str = "Call"
    microseconds: bool = False
    per: int = 1  # calls, or rows, in a sample
    regime: str = "steady"
    machine: str = MACHINE


class Sentence(NamedTuple):
    """A sentence about some rows: how many times as fast as each contender a function is, at least and at most."""

    function: str
    rows: list[Row]
    contenders: tuple[str, ...]
    regime: str = "steady"
    machine: str = MACHINE


class Throughput(NamedTuple):
    """How many calls contenders make in a second, for several Python threads that call one after the other."""

    times: tuple[str, ...]
    table: str = CALLERS
    regime: str = CALLERS
    machine: str = OTHER_MACHINE


FRONT = [
    Row("``top_k``: the 10 largest of each of 1,000 rows of 10,000", "top_k", "1000x10000 k 10 float32"),
    Row("``top_k``: the 50 largest of 151,936", "torch", "1x151936 k 50 float32"),
    Row("``scatter_nd``: 2,048 rows of 768 into 50,257", "scatter_nd", "2048 of 768 into 50257x768 float32"),
    Row("``add_at``: 100,000 rows of 64 into 10,000", "at", "add.at 100000 of 64 into 10000x64 float32"),
    Row(
        "``quantized_matmul``: 1,024 x 1,024 x 1,024, fresh B",
        "quantized_matmul",
        "1024x1024x1024 u8*s8 to u8 per column fresh B",
    ),
    Row("``quantize_linear``: 4,096 x 4,096, a scale a row", "quantize_linear", "quantize_linear 4096x4096 per row"),
]
SLOWER = [
    Row("``quantize_linear``, one scale", "quantize_linear", "quantize_linear 4096x4096 per tensor"),
    Row(
        "``quantized_matmul``: 1,024 x 1,024 x 1,024, packed B",
        "quantized_matmul",
        "1024x1024x1024 u8*s8 to u8 per column constant B",
    ),
    Row("``add_at``: 1,000,000 elements into 1,000,000", "at", "add.at 1000000 into 1000000 float32"),
    Row("``top_k``: the 8 largest of 64", "tiny", "top_k: 1x64 k 8 float32"),
    Row("``scatter_nd``: 8 elements into 64", "tiny", "scatter_nd: 8 into 64 float32"),
]
NUMPY = [
    Row("the 10 largest of each of 1,000 rows of 10,000, sorted", "top_k", "1000x10000 k 10 float32"),
    Row("the 40 largest of each of 200 rows of 151,936, sorted", "top_k", "200x151936 k 40 float32"),
    Row("the 500 largest of each of 1,000 rows of 1,000, sorted", "top_k", "1000x1000 k 500 float32"),
    Row("``add.at``: 100,000 rows of 64 into 10,000", "at", "add.at 100000 of 64 into 10000x64 float32"),
    Row("``add.at``: 1,000,000 pairs of indices into 1,000 x 1,000", "at", "add.at 1000000 into 1000x1000 float32"),
    Row("``add.at``: 1,000,000 elements into 1,000,000", "at", "add.at 1000000 into 1000000 float32"),
    Row("``maximum.at``: 100,000 rows of 64 into 10,000", "at", "maximum.at 100000 of 64 into 10000x64 float32"),
    Row("``add.at``: 10 elements into 1,000", "at", "add.at 10 into 1000 float32"),
]
TORCH = [
    Row("``torch.topk``: the 50 largest of 50,257", "torch", "1x50257 k 50 float32"),
    Row("the 50 largest of 151,936", "torch", "1x151936 k 50 float32"),
    Row("the 50 largest of each of 32 rows of 50,257", "torch", "32x50257 k 50 float32"),
    Row("the 500 largest of each of 1,000 rows of 1,000", "torch", "1000x1000 k 500 float32"),
    Row(
        "``index_put_``: 100,000 elements into 1,000 x 1,000",
        "torch",
        "100000 into 1000x1000 in place float32",
    ),
    Row("``index_put_``: 4,096 rows of 64 into 50,257", "torch", "4096 of 64 into 50257x64 in place float32"),
    Row(
        "``index_add_``, int64: 4,096 rows of 64 into 50,257",
        "torch",
        "4096 of 64 on 2000 rows into 50257x64 add in place int64",
    ),
    Row(
        "``index_add_``: 16,384 rows of 768 into 50,257 (passed on)",
        "torch",
        "16384 of 768 on 2000 rows into 50257x768 add in place float32",
    ),
    Row("``torch._int_mm`` of 1,024 x 1,024 x 1,024 (passed on)", "torch", "1024x1024x1024 s8*s8 to s32 fresh B"),
    Row("``torch.topk``: the 5 largest of 64 (passed on)", "torch", "64 k 5 float32"),
]
_PEERS = ("onnxruntime", "torch", "numpy")

SELECTIONS = {
    "front": Selection(FRONT, ratios=_PEERS),
    "front-sentence": Sentence("top_k", [row for row in FRONT if "top_k" in row.label], ("onnxruntime", "torch")),
    "front-slower": Selection(SLOWER, ratios=_PEERS),
    "numpy": Selection(NUMPY, ("numpy", "dmlcpu"), ("numpy",)),
    "torch": Selection(TORCH, ("torch", "torch on dmlcpu"), ("torch",), microseconds=True),
    "onnx": Selection("onnx", ("reference", "onnxruntime", "dmlcpu"), ("onnxruntime",), head="Model"),
    "dask": Selection("dask", ("dask topk", "dask topk and argtopk", "dmlcpu"), ("dask topk and argtopk",)),
    "numba": Selection(
        "numba",
        ("np.argsort", "np.argpartition", "dmlcpu"),
        ("np.argpartition",),
        head="The k largest of each row",
        microseconds=True,
        per=100,
    ),
    "search": Selection(
        "search",
        ("faiss flat", "faiss sq8", "usearch", "numkong", "torch", "dmlcpu"),
        head="Vectors, k and queries",
    ),
    "oversubscribed": Selection(
        EVERY,
        ("dmlcpu",),
        ("dmlcpu 16 threads", "dmlcpu 64 threads"),
        regime="oversubscribed",
        machine=OTHER_MACHINE,
    ),
    "callers": Throughput(("dmlcpu", "dmlcpu 1 thread", "torch")),
    "top_k": Selection("top_k", ("dmlcpu out", "dmlcpu"), _PEERS),
    "sort": Selection("sort", ("dmlcpu",), _PEERS, machine=OTHER_MACHINE),
    "scatter_nd": Selection("scatter_nd", ("dmlcpu out", "dmlcpu"), _PEERS),
    "scatter_elements": Selection("scatter_elements", ("dmlcpu",), _PEERS, machine=OTHER_MACHINE),
    "gather_elements": Selection("gather_elements", ("dmlcpu",), _PEERS, machine=OTHER_MACHINE),
    "argmax": Selection("argmax", ("dmlcpu",), _PEERS, machine=OTHER_MACHINE),
    "quantized_matmul": Selection("quantized_matmul", ("dmlcpu",), _PEERS),
    "matmul_integer": Selection("matmul_integer", ("dmlcpu",), _PEERS),
    "matmul_integer_to_float": Selection("matmul_integer_to_float", ("dmlcpu",), ("onnxruntime", "numpy")),
    "dynamic_quantize_matmul": Selection(
        "dynamic_quantize_matmul", ("dmlcpu",), ("onnxruntime",), machine=OTHER_MACHINE
    ),
    "matmul_top_k": Selection("matmul_top_k", ("dmlcpu",), ("torch", "numpy")),
    "quantize_linear": Selection("quantize_linear", ("dmlcpu",), _PEERS),
}
