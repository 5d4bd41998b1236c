"""Descs of operators made up to have every kind of field."""

import functools
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
from desc_builders import tensor

from dmlcpu import FeatureLevel, OperatorType, TensorDesc
from dmlcpu.common.prepared import ByFunction
from dmlcpu.directml.base import OperatorDesc, counted_by
from dmlcpu.directml.feature_level import FOUR, ONE_TO_EIGHT, Allowed, Support, types
from dmlcpu.errors import InvalidDescriptorError

FLOATS, EARLY = types("FLOAT32 FLOAT16"), types("FLOAT32")
OPERATOR = "DML_OPERATOR_SCATTER_ND"  # whose number the sums borrow


def level(since, dimensions, data_types, **bias):
    allowed = Allowed(dimensions, data_types)
    tensors = dict.fromkeys(("InputTensors", "OutputTensor", "GreatestTensor"), allowed)
    return Support(since, {**tensors, "BiasTensor": Allowed(dimensions, data_types, **bias)})


@functools.lru_cache
def prepare(desc, budget):
    """Return how a desc runs: by its own method."""
    return ByFunction(operator=desc.operator, kernel="none", results=(), function=desc.run)


class Sums(NamedTuple):
    sums: np.ndarray
    greatest: np.ndarray | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SumOperatorDesc(OperatorDesc):
    """output = sum of weights[i] * inputs[i], plus the bias; greatest is its greatest element."""

    OPERATOR_TYPE: ClassVar = OperatorType.SCATTER_ND
    OUTPUTS: ClassVar = ("output_tensor", "greatest_tensor")
    FEATURE_LEVELS: ClassVar = (
        level(FeatureLevel.LEVEL_2_0, FOUR, EARLY, required=True),
        level(FeatureLevel.LEVEL_3_0, ONE_TO_EIGHT, EARLY, required=True),
        level(FeatureLevel.LEVEL_6_2, ONE_TO_EIGHT, FLOATS),
    )

    input_tensors: tuple[TensorDesc, ...] = counted_by("InputCount")
    weights: tuple[int, ...] = counted_by("WeightCount")
    bias_tensor: TensorDesc | None = None
    output_tensor: TensorDesc
    greatest_tensor: TensorDesc | None = None

    def _check(self):
        if len(self.weights) != len(self.input_tensors):
            allowed = f"{len(self.input_tensors)} (InputCount)"
            raise InvalidDescriptorError(self.operator, "WeightCount", str(len(self.weights)), allowed)
        for i, each in enumerate(self.input_tensors):
            self._check_sizes(f"InputTensors[{i}]", each, self.output_tensor.sizes, "OutputTensor.Sizes")

    def _make_arrays(self, owned):
        names = [f"input_tensors[{i}]" for i in range(len(self.weights))]
        others = ("bias_tensor", *self.OUTPUTS)
        return lambda bound: ([bound[name] for name in names], *[bound.get(name) for name in others])

    def _key(self, arrays):
        return prepare, (self,)

    def run(self, inputs, bias, out, greatest):
        terms = [weight * x for weight, x in zip(self.weights, inputs, strict=True)]
        out[...] = sum(terms) + (0 if bias is None else bias)
        if greatest is not None:
            greatest[...] = out.max()

    def _make_result(self):
        return lambda bound: Sums(bound["output_tensor"], bound.get("greatest_tensor"))


def sums(**fields):
    defaults = {
        "input_tensors": [tensor("FLOAT32", 2, 3)] * 2,
        "weights": (3, 10),
        "bias_tensor": tensor("FLOAT32", 2, 3),
        "output_tensor": tensor("FLOAT32", 2, 3),
    }
    return SumOperatorDesc(**{**defaults, **fields})


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitOperatorDesc(OperatorDesc):
    """Rows of the input become outputs, which may be as many as there are sizes; input may be the first output."""

    OPERATOR_TYPE: ClassVar = OperatorType.SCATTER_ND
    OUTPUTS: ClassVar = ("output_tensors", "copy_tensor")
    IN_PLACE: ClassVar = ("copy_tensor", "input_tensor")
    FEATURE_LEVELS: ClassVar = (
        Support(
            FeatureLevel.LEVEL_2_0,
            dict.fromkeys(("InputTensor", "OutputTensors", "CopyTensor"), Allowed(ONE_TO_EIGHT, FLOATS)),
        ),
    )

    input_tensor: TensorDesc
    output_tensors: tuple[TensorDesc, ...] = counted_by("OutputCount")
    rows: tuple[int, ...] = counted_by("OutputCount")
    copy_tensor: TensorDesc | None = None

    def _check(self):
        pass

    def _make_arrays(self, owned):
        find = self._make_result()
        return lambda bound: [bound["input_tensor"], *find(bound)]

    def _key(self, arrays):
        return prepare, (self,)

    def _make_result(self):
        return lambda bound: [bound[f"output_tensors[{i}]"] for i in range(len(self.rows))]

    def run(self, x, *outputs):
        for out, row in zip(outputs, self.rows, strict=True):
            out[...] = x[row]


def split(**fields):
    defaults = {"input_tensor": tensor("FLOAT32", 2, 3), "output_tensors": [tensor("FLOAT32", 3)] * 2, "rows": [1, 0]}
    return SplitOperatorDesc(**{**defaults, **fields})
