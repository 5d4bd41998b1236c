"""How long a new process waits: for imports, and for the first result of each operator.

asv runs the code that these methods return in a fresh interpreter for each sample, and times it there.
"""

FIRST_RESULTS = {
    "top_k": "dmlcpu.top_k(np.zeros((1, 64), np.float32), 8)",
    "scatter_nd": "dmlcpu.scatter_nd(np.zeros(64), np.zeros((8, 1), np.int64), np.ones(8))",
    "quantized_matmul": (
        "a, b = np.ones((1, 64), np.uint8), np.ones((64, 64), np.int8)\n"
        "dmlcpu.quantized_matmul(a, 1.0, None, b, 1.0, None, 1.0, None)"
    ),
}


class Import:
    params = (["dmlcpu", "numpy"],)
    param_names = ("package",)
    repeat = (5, 20, 10.0)

    def timeraw_import(self, package):
        return f"import {package}"


class FirstResult:
    """With a warm cache: asv's warm-up runs the code once before it takes samples, and compiles what is missing."""

    params = (list(FIRST_RESULTS),)
    param_names = ("operator",)
    warmup_time = 0.1
    repeat = (5, 10, 20.0)
    timeout = 300

    def timeraw_first_result(self, operator):
        return f"import numpy as np\nimport dmlcpu\n{FIRST_RESULTS[operator]}"
