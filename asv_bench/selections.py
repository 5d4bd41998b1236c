"""Which cells the blocks of figures in the documentation show, and what they are called there."""

from typing import NamedTuple

MACHINE = "amd-epyc-family-25-model-17-2-cores"  # of the figures in texts; all machines have pages of their own

TITLES = {
    "top_k": "top_k",
    "top_k_sizes": "top_k: from small to large",
    "top_k_types": "top_k: types",
    "top_k_data": "top_k: kinds of data",
    "scatter_nd": "scatter_nd",
    "scatter_nd_types": "scatter_nd: types",
    "scatter_nd_grid": "scatter_nd: lengths of slices, parts and repeats",
    "at": "add_at and its like",
    "quantized_matmul": "quantized_matmul",
    "quantized_matmul_sizes": "quantized_matmul: from small to large",
    "quantized_matmul_parameters": "quantized_matmul: signs and parameters",
    "matmul_integer": "matmul_integer",
    "matmul_integer_to_float": "matmul_integer_to_float",
    "matmul_top_k": "matmul_top_k",
    "quantize_linear": "Quantizers",
    "torch": "Calls of PyTorch's programs",
    "threads": "Calls that use several threads",
    "tiny": "Tiny calls",
}


class Selection(NamedTuple):
    """Rows of (label, table, case), and the contenders whose times they have."""

    rows: list[tuple[str, str, str]]
    contenders: tuple[str, ...]
    ratio: tuple[str, str] | None = None  # the last column: the one's time divided by the other's
    head: str = "Call"
    scale: float = 1e3
    regime: str = "steady"


FRONT = [
    ("`top_k`: 10 of each of 1,000 rows of 10,000", "top_k", "1000x10000 k 10 float32"),
    ("`top_k`: 50 of one row of 151,936", "torch", "1x151936 k 50 float32"),
    ("`scatter_nd`: 2,048 rows of 768 into 50,257", "scatter_nd", "2048 of 768 into 50257x768 float32"),
    ("`add_at`: 100,000 rows of 64 into 10,000", "at", "add.at 100000 of 64 into 10000x64 float32"),
    (
        "`quantized_matmul`: 1,024 x 1,024 x 1,024, packed",
        "quantized_matmul",
        "1024x1024x1024 u8*s8 to u8 per column constant B",
    ),
    ("the same, B not packed", "quantized_matmul", "1024x1024x1024 u8*s8 to u8 per column fresh B"),
    ("`quantize_linear`: 4,096 x 4,096 per row", "quantize_linear", "quantize_linear 4096x4096 per row"),
]

SELECTIONS = {}
