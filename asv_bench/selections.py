"""Which cells the blocks of figures in the documentation show, and the names of rows there."""

from typing import NamedTuple

MACHINE = "amd-epyc-family-25-model-17-2-cores"  # of most figures in texts; each machine has its own page
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
    "at": "add_at, put_at, maximum_at",
    "quantized_matmul": "quantized_matmul",
    "quantized_matmul_sizes": "quantized_matmul: from small to large",
    "quantized_matmul_parameters": "quantized_matmul: signs and parameters",
    "matmul_integer": "matmul_integer",
    "matmul_integer_to_float": "matmul_integer_to_float",
    "dynamic_quantize_matmul": "dynamic_quantize_matmul",
    "matmul_top_k": "matmul_top_k",
    "quantize_linear": "Quantizers",
    "torch": "Calls from PyTorch programs",
    "threads": "Calls that use several threads",
    "tiny": "Tiny calls",
    "search": "Search among int8 vectors",
    "onnx": "ONNX models",
    "dask": "Dask arrays",
    "numba": "Calls in functions compiled with Numba",
    "callers": "Calls of many Python threads",
}


EVERY = "every table"
CALLERS = "callers"  # the regime, and the table, of calls that several Python threads make


class Row(NamedTuple):
    label: str
    table: str
    case: str


class Selection(NamedTuple):
    """Chosen rows, or all of a table, with the times of contenders, and ratios to the time of the first of them."""

    rows: list[Row] | str  # or the name of a table, or EVERY
    times: tuple[str, ...] = ("dmlcpu",)
    ratios: tuple[str, ...] = ()  # of these contenders' times to that of the first one in `times`
    head: str = "Call"
    microseconds: bool = False
    per: int = 1  # calls, or rows, in a sample
    regime: str = "steady"
    machine: str = MACHINE
    title: str = ""  # what all rows have in common


class Ratio(NamedTuple):
    """A figure of a sentence: the least and the greatest ratio of contenders' times to another's."""

    rows: list[Row] | str  # or EVERY
    contenders: tuple[str, ...]
    to: str = "dmlcpu"


class Time(NamedTuple):
    """A figure of a sentence: a contender's median in microseconds."""

    row: Row
    contender: str = "dmlcpu"
    per: int = 1  # calls, or rows, in a sample


class Sentence(NamedTuple):
    """Sentences about the data, with the names of their figures in braces."""

    text: str
    figures: dict[str, Ratio | Time]
    regime: str = "steady"
    machine: str = MACHINE


class Throughput(NamedTuple):
    """A table of the calls that contenders make in a second with several Python threads."""

    times: tuple[str, ...]
    table: str = CALLERS
    regime: str = CALLERS
    machine: str = OTHER_MACHINE


class Overview(NamedTuple):
    """A machine's table of medians: a row for each table of cells."""

    machine: str
    regime: str = "steady"


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
    Row(
        "``add.at``: the number 1 at 1,000,000 indices, int32",
        "at",
        "add.at 1000000 into 1000000 int32 by the number 1",
    ),
    Row("``add.at``: the number 1 at 3,000 indices, int32", "at", "add.at 3000 into 10000 int32 by the number 1"),
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
UPDATES_OF_ELEMENTS = [
    Row("", "at", "add.at 1000000 into 1000000 float32"),
    Row("", "at", "add.at 1000000 into 1000000 float64"),
    Row("", "scatter_nd", "4000000 into 4096x4096 float32"),
    Row("", "scatter_nd", "5000000 into 10000000 float32"),
]
ONE_ROW = [Row("", "matmul_integer", "1x4096x4096 u8*s8 to s32 fresh B")]
SEARCHED = {
    "100000x384": "100,000 vectors of 384 bytes",
    "200000x100": "200,000 vectors of 100 bytes",
    "1000000x128": "1,000,000 vectors of 128 bytes",
}
_PEERS = ("onnxruntime", "torch", "numpy")
_FORCED = ("dmlcpu 16 threads", "dmlcpu 64 threads")


def _numpy(label):
    """Return NumPy's row with a label, in a list."""
    return [row for row in NUMPY if row.label == label]


def _searches(vectors):
    """Return the table of searches among some vectors: a row for each number of queries."""
    rows = [Row(f"{count:,}", "search", f"{vectors} k 10, {count} queries") for count in (1, 32, 1024)]
    others = ("faiss flat", "faiss sq8", "usearch", "numkong", "torch")
    return Selection(rows, ("dmlcpu", *others), head="Queries", title=f"{SEARCHED[vectors]}, k = 10")


SENTENCES = {
    "front-sentence": Sentence(
        "``top_k`` is {numpy} as fast as NumPy, {onnxruntime} as fast as ONNX Runtime and {torch} as fast as PyTorch "
        "in the chart's two ``top_k`` calls.",
        {peer: Ratio([row for row in FRONT if "top_k" in row.label], (peer,)) for peer in _PEERS},
    ),
    "numpy-slower": Sentence(
        "Compared with ``add_at``, NumPy takes {many} as long to add 1,000,000 numbers to elements of an array of "
        "1,000,000, and {few} as long to add 10 numbers to elements of an array of 1,000.",
        {
            "many": Ratio(_numpy("``add.at``: 1,000,000 elements into 1,000,000"), ("numpy",)),
            "few": Ratio(_numpy("``add.at``: 10 elements into 1,000"), ("numpy",)),
        },
    ),
    "torch-slower": Sentence(
        "Small calls are passed on to PyTorch's own kernel, but PyTorch first has to call Python: the 5 largest of 64 "
        'elements take {ours} microseconds instead of {theirs}. The other calls marked "passed on" run the same '
        "PyTorch kernel in both columns, so their differences are noise of a shared machine. ``index_put_`` of 100,000 "
        "single elements is not passed on; PyTorch's own kernel takes {put} as long.",
        {
            "ours": Time(TORCH[-1], "torch on dmlcpu"),
            "theirs": Time(TORCH[-1], "torch"),
            "put": Ratio([row for row in TORCH if "100,000 elements" in row.label], ("torch",), "torch on dmlcpu"),
        },
    ),
    "numba-sentence": Sentence(
        "The 10 largest of 1,000 elements take {compiled} microseconds in compiled code. From Python ``top_k`` takes "
        "{python} microseconds for the 8 largest of 64 elements.",
        {
            "compiled": Time(Row("", "numba", "10 of 1000"), per=100),
            "python": Time(Row("", "tiny", "top_k: 1x64 k 8 float32")),
        },
    ),
    "oversubscribed-sentence": Sentence(
        "A call takes {all} as long as on two threads. Updates of single elements take {updates} as long, because "
        "plans for many threads partition the updates, which is twice the work. A product of one row with a fresh B "
        "takes {row} as long.",
        {
            "all": Ratio(EVERY, _FORCED),
            "updates": Ratio(UPDATES_OF_ELEMENTS, _FORCED),
            "row": Ratio(ONE_ROW, _FORCED),
        },
        regime="oversubscribed",
        machine=OTHER_MACHINE,
    ),
    "search-sentence": Sentence(
        "For 32 queries PyTorch is the fastest of the others, and takes {torch} as long as dmlcpu.",
        {"torch": Ratio([Row("", "search", f"{vectors} k 10, 32 queries") for vectors in SEARCHED], ("torch",))},
    ),
}

SELECTIONS = {
    **SENTENCES,
    "overview": Overview(MACHINE),
    "overview-other": Overview(OTHER_MACHINE),
    "front": Selection(FRONT, ratios=_PEERS),
    "front-slower": Selection(SLOWER, ratios=_PEERS),
    "numpy": Selection(NUMPY, ("dmlcpu", "numpy"), ("numpy",)),
    "torch": Selection(TORCH, ("torch on dmlcpu", "torch"), ("torch",), microseconds=True),
    "onnx": Selection("onnx", ("dmlcpu", "onnxruntime", "reference"), ("onnxruntime",), head="Model"),
    "dask": Selection("dask", ("dmlcpu", "dask topk", "dask topk and argtopk"), ("dask topk and argtopk",)),
    "numba": Selection(
        "numba",
        ("dmlcpu", "np.argsort", "np.argpartition"),
        ("np.argpartition",),
        head="The k largest of each row",
        microseconds=True,
        per=100,
    ),
    **{f"search-{vectors}": _searches(vectors) for vectors in SEARCHED},
    "oversubscribed": Selection(EVERY, ratios=_FORCED, regime="oversubscribed", machine=OTHER_MACHINE),
    "callers": Throughput(("dmlcpu", "dmlcpu 1 thread", "torch")),
    "top_k": Selection("top_k", ("dmlcpu", "dmlcpu out"), _PEERS),
    "sort": Selection("sort", ratios=_PEERS, machine=OTHER_MACHINE),
    "scatter_nd": Selection("scatter_nd", ("dmlcpu", "dmlcpu out"), _PEERS),
    "scatter_elements": Selection("scatter_elements", ratios=_PEERS, machine=OTHER_MACHINE),
    "gather_elements": Selection("gather_elements", ratios=_PEERS, machine=OTHER_MACHINE),
    "argmax": Selection("argmax", ratios=_PEERS, machine=OTHER_MACHINE),
    "quantized_matmul": Selection("quantized_matmul", ratios=_PEERS),
    "matmul_integer": Selection("matmul_integer", ratios=_PEERS),
    "matmul_integer_to_float": Selection("matmul_integer_to_float", ratios=("onnxruntime", "numpy")),
    "dynamic_quantize_matmul": Selection("dynamic_quantize_matmul", ratios=("onnxruntime",), machine=OTHER_MACHINE),
    "matmul_top_k": Selection("matmul_top_k", ratios=("torch", "numpy")),
    "quantize_linear": Selection("quantize_linear", ratios=_PEERS),
}
