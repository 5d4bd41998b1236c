"""The table of operators, one row for each. Rows are text, so listing the operators imports none of them."""

import importlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from dmlcpu.common.data_types import BYTE_TYPES, NUMBERS
from dmlcpu.directml.operator_type import OperatorType

if TYPE_CHECKING:  # the operators' names in `dmlcpu`, for type checkers, which cannot read the table
    from dmlcpu.operators.argmax.descriptor import ArgmaxOperatorDesc
    from dmlcpu.operators.argmax.function import argmax
    from dmlcpu.operators.argmin.descriptor import ArgminOperatorDesc
    from dmlcpu.operators.argmin.function import argmin
    from dmlcpu.operators.argsort.function import argsort
    from dmlcpu.operators.dequantize_linear.descriptor import (
        DequantizeOperatorDesc,
        ElementWiseDequantizeLinearOperatorDesc,
    )
    from dmlcpu.operators.dequantize_linear.function import dequantize_linear
    from dmlcpu.operators.dynamic_quantize_linear.descriptor import DynamicQuantizeLinearOperatorDesc
    from dmlcpu.operators.dynamic_quantize_linear.function import DynamicQuantized, dynamic_quantize_linear
    from dmlcpu.operators.dynamic_quantize_matmul.function import dynamic_quantize_matmul
    from dmlcpu.operators.gather_elements.descriptor import GatherElementsOperatorDesc
    from dmlcpu.operators.gather_elements.function import gather_elements
    from dmlcpu.operators.matmul_integer.descriptor import MatrixMultiplyIntegerOperatorDesc
    from dmlcpu.operators.matmul_integer.function import matmul_integer
    from dmlcpu.operators.matmul_integer_to_float.descriptor import MatrixMultiplyIntegerToFloatOperatorDesc
    from dmlcpu.operators.matmul_integer_to_float.function import matmul_integer_to_float
    from dmlcpu.operators.matmul_top_k.function import MatmulTopK, matmul_top_k
    from dmlcpu.operators.quantize_linear.descriptor import (
        ElementWiseQuantizeLinearOperatorDesc,
        QuantizeOperatorDesc,
    )
    from dmlcpu.operators.quantize_linear.function import quantize_linear
    from dmlcpu.operators.quantized_matmul.descriptor import QuantizedLinearMatrixMultiplyOperatorDesc
    from dmlcpu.operators.quantized_matmul.function import quantized_matmul
    from dmlcpu.operators.scatter_elements.descriptor import ScatterElementsOperatorDesc
    from dmlcpu.operators.scatter_elements.function import scatter_elements
    from dmlcpu.operators.scatter_nd.descriptor import ScatterNDOperatorDesc
    from dmlcpu.operators.scatter_nd.function import scatter_nd
    from dmlcpu.operators.sort.function import sort
    from dmlcpu.operators.sort_with_indices.function import Sorted, sort_with_indices
    from dmlcpu.operators.top_k.descriptor import TopK1OperatorDesc, TopKOperatorDesc
    from dmlcpu.operators.top_k.function import TopK, top_k

    __all__ = [
        "ArgmaxOperatorDesc",
        "ArgminOperatorDesc",
        "DequantizeOperatorDesc",
        "DynamicQuantizeLinearOperatorDesc",
        "DynamicQuantized",
        "ElementWiseDequantizeLinearOperatorDesc",
        "ElementWiseQuantizeLinearOperatorDesc",
        "GatherElementsOperatorDesc",
        "MatmulTopK",
        "MatrixMultiplyIntegerOperatorDesc",
        "MatrixMultiplyIntegerToFloatOperatorDesc",
        "QuantizeOperatorDesc",
        "QuantizedLinearMatrixMultiplyOperatorDesc",
        "ScatterElementsOperatorDesc",
        "ScatterNDOperatorDesc",
        "Sorted",
        "TopK",
        "TopK1OperatorDesc",
        "TopKOperatorDesc",
        "argmax",
        "argmin",
        "argsort",
        "dequantize_linear",
        "dynamic_quantize_linear",
        "dynamic_quantize_matmul",
        "gather_elements",
        "matmul_integer",
        "matmul_integer_to_float",
        "matmul_top_k",
        "quantize_linear",
        "quantized_matmul",
        "scatter_elements",
        "scatter_nd",
        "sort",
        "sort_with_indices",
        "top_k",
    ]


class Example(NamedTuple):
    """A small call of an operator's function."""

    arguments: dict[str, Any]
    kernel: str | None = None  # the kernel that it shows; None: those that the plan chooses


class Workload(NamedTuple):
    """A medium-sized call, and the amount of the work that limits its speed.

    The limit is "read" or "copy", with the bytes that must be moved if each is moved once; or "multiply", with the
    number of products of bytes.
    """

    arguments: dict[str, Any]
    limit: str
    amount: int


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator: its name and its parts.

    Increment the version if a valid call returns other bits than before, or if results get other names. Results stored
    by an earlier version are then computed again.
    """

    name: str  # of its folder, its function, the reference, its page and its kernels
    # The classes that describe it to DirectML, all in its descriptor.py; none if DirectML has no such operator.
    descs: Mapping[OperatorType, str]
    types: tuple[str, ...]  # data types that kernels are compiled for
    results: tuple[str, ...] = ("y",)  # the names of the results
    result: str | None = None  # the class of the function's result, in its module, unless the result is one array
    version: int = 1  # of the semantics
    family: str = ""  # the folder whose blocks.py serves several operators

    @property
    def function(self) -> Any:
        """The function on arrays."""
        return getattr(self._module("function"), self.name)

    @property
    def calls(self) -> Any:
        """The module of the function, with the parts of a call.

        - ``request(*arguments)``, with all arguments of the function in order: the key of `prepare` without the budget,
          and the arrays that the call reads.
        - ``prepare(*key, budget)``, cached: a Prepared.
        - ``allocate(prepared, arrays, out)``: the outputs, new if `out` is None.
        """
        return self._module("function")

    @property
    def blocks(self) -> Any:
        """The module that estimates calls on arrays that are not in memory, and runs them in blocks.

        It has SOURCES, the names of the arguments that may be Sources, and two functions, whose arguments are those of
        the operator's function except `out`:

        - ``estimate(**arguments)``: returns an Estimate of a call; refuses what the function refuses.
        - ``run(arguments, sinks, memory, stopping)``: writes the results to sinks, in blocks within `memory` bytes.
          Raises Stopped between two blocks if stopping() is true.
        """
        if self.family:
            return importlib.import_module(f"dmlcpu.{self.family}.blocks").blocks_of(self)
        return self._module("blocks")

    @property
    def reference(self) -> Any:
        """The operator in plain NumPy."""
        return getattr(importlib.import_module("dmlcpu.reference"), self.name)

    def desc_class(self, operator_type: OperatorType) -> Any:
        """Return the class of descs of a type."""
        return getattr(self._module("descriptor"), self.descs[operator_type])

    def examples(self, dtype: str) -> Iterator[Example]:
        """Yield small calls that together compile all that a type needs; the first is a plain one.

        For bfloat16 they use float16, which NumPy has and which the same kernels serve.
        """
        yield from self._module("examples").examples("float16" if dtype == "bfloat16" else dtype)

    def workload(self, nbytes: int) -> Workload:
        """Return a call with the typical type for `dmlcpu info --measure`; arrays take about `nbytes` or less."""
        found: Workload = self._module("examples").workload(nbytes)
        return found

    @property
    def typical(self) -> str:
        """The type for uses that need only one."""
        return "float32" if "float32" in self.types else self.types[0]

    def desc_examples(self) -> Iterator[tuple[Any, dict[str, Any]]]:
        """Yield the typical type's first example as a desc of each operator type, with its inputs.

        An operator without descs has none.
        """
        yield from self._module("examples").desc_examples()

    def homes(self) -> dict[str, str]:
        """Return the public names, and the modules they are in."""
        functions = [self.name, self.result] if self.result else [self.name]
        return {
            **dict.fromkeys(functions, f"dmlcpu.operators.{self.name}.function"),
            **dict.fromkeys(self.descs.values(), f"dmlcpu.operators.{self.name}.descriptor"),
        }

    def _module(self, part: str) -> Any:
        return importlib.import_module(f"dmlcpu.operators.{self.name}.{part}")


OPERATORS = {
    row.name: row
    for row in (
        Operator(
            "top_k",
            {OperatorType.TOP_K: "TopKOperatorDesc", OperatorType.TOP_K1: "TopK1OperatorDesc"},
            NUMBERS,
            ("values", "indices"),
            result="TopK",
        ),
        Operator("scatter_nd", {OperatorType.SCATTER_ND: "ScatterNDOperatorDesc"}, NUMBERS),
        Operator("scatter_elements", {OperatorType.SCATTER: "ScatterElementsOperatorDesc"}, NUMBERS),
        Operator("gather_elements", {OperatorType.GATHER_ELEMENTS: "GatherElementsOperatorDesc"}, NUMBERS),
        Operator(
            "quantized_matmul",
            {OperatorType.QUANTIZED_LINEAR_MATRIX_MULTIPLY: "QuantizedLinearMatrixMultiplyOperatorDesc"},
            BYTE_TYPES,
            family="products",
        ),
        Operator(
            "matmul_integer",
            {OperatorType.MATRIX_MULTIPLY_INTEGER: "MatrixMultiplyIntegerOperatorDesc"},
            BYTE_TYPES,
            family="products",
        ),
        Operator(
            "matmul_integer_to_float",
            {OperatorType.MATRIX_MULTIPLY_INTEGER_TO_FLOAT: "MatrixMultiplyIntegerToFloatOperatorDesc"},
            BYTE_TYPES,
            family="products",
        ),
        Operator("dynamic_quantize_matmul", {}, ("float32", "float16", "bfloat16")),
        Operator("matmul_top_k", {}, BYTE_TYPES, ("values", "indices"), result="MatmulTopK"),
        Operator(
            "quantize_linear",
            {
                OperatorType.ELEMENT_WISE_QUANTIZE_LINEAR: "ElementWiseQuantizeLinearOperatorDesc",
                OperatorType.QUANTIZE: "QuantizeOperatorDesc",
            },
            ("float32", "float16", "bfloat16", "int32"),
            family="quantizers",
        ),
        Operator(
            "dequantize_linear",
            {
                OperatorType.ELEMENT_WISE_DEQUANTIZE_LINEAR: "ElementWiseDequantizeLinearOperatorDesc",
                OperatorType.DEQUANTIZE: "DequantizeOperatorDesc",
            },
            (*BYTE_TYPES, "int16", "uint16", "int32", "uint32"),
            family="quantizers",
        ),
        Operator(
            "dynamic_quantize_linear",
            {OperatorType.DYNAMIC_QUANTIZE_LINEAR: "DynamicQuantizeLinearOperatorDesc"},
            ("float32", "float16", "bfloat16"),
            ("y", "scale", "zero_point"),
            result="DynamicQuantized",
        ),
        Operator("sort", {}, NUMBERS, family="sorting"),
        Operator("argsort", {}, NUMBERS, ("indices",), family="sorting"),
        Operator("sort_with_indices", {}, NUMBERS, ("values", "indices"), result="Sorted", family="sorting"),
        Operator("argmax", {OperatorType.ARGMAX: "ArgmaxOperatorDesc"}, NUMBERS, family="reductions"),
        Operator("argmin", {OperatorType.ARGMIN: "ArgminOperatorDesc"}, NUMBERS, family="reductions"),
    )
}
