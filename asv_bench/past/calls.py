"""Some seventy cells that also run with past versions of dmlcpu: `python -m asv_bench.history` draws them."""

from benchmarks.cases.at import AtCase
from benchmarks.cases.case import table
from benchmarks.cases.matmul_integer import MatmulIntegerCase
from benchmarks.cases.matmul_integer_to_float import MatmulIntegerToFloatCase
from benchmarks.cases.matmul_top_k import MatmulTopKCase
from benchmarks.cases.quantize_linear import QuantizerCase
from benchmarks.cases.quantized_matmul import QuantizedMatmulCase
from benchmarks.cases.scatter_nd import ScatterNDCase
from benchmarks.cases.top_k import TopKCase
from benchmarks.conditions import ready
from benchmarks.peers import COMPILED, Comparison, build, cells, parts

import dmlcpu

CALLS = 1_000


class History(Comparison):
    """A cell of the history. The list of cells must be the same at every commit, because asv numbers them."""

    rounds = 1
    repeat = (3, 7, 1.0)

    def setup(self, cell):
        implementation, name = parts(cell)
        case = self.cases[name]
        try:
            self.call = ready(build(case, implementation))
        except (AttributeError, ImportError) as error:
            if implementation.startswith("dmlcpu"):  # this version has no such operator yet
                raise NotImplementedError(f"dmlcpu {dmlcpu.__version__}: {error}") from None
            raise


class TopK(History):
    cases = table(
        TopKCase((1_000, 10_000), 10),
        TopKCase((1, 151_936), 50),
        TopKCase((10_000, 1_000), 100),
        TopKCase((1_000, 1_000), 500),
        TopKCase((100_000, 64), 8),
        TopKCase((10_000, 1_000), 10, axis=0),
        TopKCase((1, 1_000_000), 10),
        TopKCase((1_000, 10_000), 10, dtype="int64"),
    )
    params = cells(cases, ["dmlcpu", "onnxruntime", "torch"], everywhere=True)

    def time_call(self, cell):
        return self.call()


class Scatter(History):
    cases = table(
        ScatterNDCase((50_257, 768), 2_048),
        ScatterNDCase((4_096, 4_096), 4_000_000, coordinates=2),
        ScatterNDCase((50_257, 768), 16_384, rows=2_000, reduction="add", in_place=True),
        ScatterNDCase((1_000_000,), 4_000_000, rows=1_000, reduction="add", in_place=True),
        AtCase((10_000, 64), 100_000),
        AtCase((1_000_000,), 1_000_000),
    )
    params = cells(cases, ["dmlcpu", "numpy", "torch"], everywhere=True)

    def time_call(self, cell):
        return self.call()


class Products(History):
    cases = table(
        QuantizedMatmulCase(1_024, 1_024, 1_024),
        QuantizedMatmulCase(1_024, 1_024, 1_024, constant_b=False),
        QuantizedMatmulCase(128, 768, 3_072),
        QuantizedMatmulCase(16, 4_096, 4_096),
        QuantizedMatmulCase(1, 4_096, 4_096),
        QuantizedMatmulCase(128, 64, 128, constant_b=False, per_column=False, batch=(64,)),
        MatmulIntegerCase(1_024, 1_024, 1_024),
        MatmulIntegerToFloatCase(128, 768, 3_072),
        MatmulTopKCase(32, 100_000, 384, 10),
    )
    params = cells(cases, ["dmlcpu", "onnxruntime"], everywhere=True)

    def time_call(self, cell):
        return self.call()


class Quantizers(History):
    cases = table(
        QuantizerCase("quantize_linear", (4_096, 4_096), "row"),
        QuantizerCase("dynamic_quantize_linear", (4_096, 4_096)),
    )
    params = cells(cases, ["dmlcpu", "onnxruntime"], everywhere=True)

    def time_call(self, cell):
        return self.call()


class Tiny(History):
    """1,000 calls a sample: milliseconds are microseconds a call."""

    cases = table(TopKCase((1, 64), 8), ScatterNDCase((64,), 8), QuantizedMatmulCase(16, 64, 64))
    params = cells(cases, ["dmlcpu", COMPILED, "onnxruntime"], everywhere=True)

    def time_1000_calls(self, cell):
        call = self.call
        for _ in range(CALLS):
            result = call()
        return result
