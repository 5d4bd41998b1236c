"""How dynamic_quantize_linear is carried out: kernels find the range, then scale and zero point, then quantize."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dmlcpu.common.arguments import Array, as_dtype, check_type
from dmlcpu.common.forms import Form, fitting
from dmlcpu.common.parameters import as_float32
from dmlcpu.common.prepared import ByFunction, Prepared, converting
from dmlcpu.common.regions import Tensor
from dmlcpu.kernels import registry
from dmlcpu.kernels.quantize_linear.dynamic_range import RANGE_CELLS
from dmlcpu.kernels.quantize_linear.work import SPACE_CELLS
from dmlcpu.quantizers.arguments import FLOAT, FLOATS
from dmlcpu.quantizers.layout import Layout, layout_of
from dmlcpu.quantizers.plan import cut
from dmlcpu.reference import dynamic_quantize_linear as reference_dynamic_quantize_linear
from dmlcpu.runtime.memory import Workspace, frombuffer, words
from dmlcpu.runtime.threads import REFERENCE, Budget

NAME = "dynamic_quantize_linear"
_TYPES = ("uint8", "int8")
_BYTE = np.dtype(np.uint8)


@functools.lru_cache(maxsize=1024)
def prepare(forms: tuple[Any, ...], options: tuple[Any], budget: Budget) -> Prepared:
    """Return how calls are carried out. forms: of x, and y's strides; options: y's type, as it is given."""
    x = Form(*forms[0])
    check_type(NAME, "x", x.dtype, FLOATS)
    y = Form(x.shape, as_dtype(NAME, "out_dtype", options[0], _TYPES), fitting(forms[1], x.shape))
    results = Tensor(y.shape, y.dtype), Tensor((), FLOAT), Tensor((), y.dtype)
    if budget == REFERENCE or 0 in x.shape:
        return ByFunction(operator=NAME, kernel="reference", results=results, function=_refer)
    if x.dtype == np.float64:
        return converting(_plan(Form(x.shape, FLOAT), y, results, budget), [(0, as_float32)])
    return _plan(x, y, results, budget)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan(Prepared):
    """The kernels and the work record for one set of layouts."""

    find_range: Callable[..., Any]  # for the parts that the work is cut into, as `quantize`
    settle: Callable[..., Any]  # writes scale and zero point
    quantize: Callable[..., Any]
    found: Array  # of a call, before it begins: 0, which stays if the range is not finite, and the number of parts
    work: Array
    word: np.dtype[Any]  # what the kernels see x as
    view: Callable[..., Array]  # returns the words of x and y

    def run(self, x: Array, y: Array, scale: Array, zero_point: Array) -> bool | None:
        """Run; return True, with nothing written, if the range of x is not finite."""
        view = self.view
        flat = view(x, self.word), frombuffer(scale, FLOAT), frombuffer(zero_point, _BYTE), view(y, _BYTE)
        scratch, found = self.workspace.take(), self.found.copy()
        self.find_range(flat[0], self.work, scratch)
        self.settle(flat[1], flat[2], found, self.work, scratch)
        if found[0]:
            self.quantize(*flat, self.work, scratch)
        self.workspace.give_back(scratch)
        return None if found[0] else True


def _plan(x: Form, y: Form, results: tuple[Tensor, ...], budget: Budget) -> Plan:
    """Cut the work."""
    of_x, of_y = layout_of(x), layout_of(y)
    one = (1,) * len(x.shape), (0,) * len(x.shape)
    row, work, parts = cut(NAME, (of_x, Layout(*one, "float32"), Layout(*one, of_y.type), of_y), budget)
    find_range, settle = (registry.find(NAME, name).kernel for name in ("range", "settle"))
    return Plan(
        operator=NAME,
        kernel=row.name,
        results=results,
        is_single=parts == 1,
        workspace=Workspace(parts * (RANGE_CELLS + SPACE_CELLS)),
        find_range=find_range.for_parts(parts),
        settle=settle.for_parts(1),
        quantize=row.kernel.for_parts(parts),
        found=np.array([0, parts]),
        work=work,
        word=of_x.word,
        view=frombuffer if x.strides is None and y.strides is None else words,
    )


def _refer(x: Array, y: Array, scale: Array, zero_point: Array) -> bool | None:
    """Run by the reference; return True if the range of x is not finite."""
    with np.errstate(all="ignore"):
        values = x.astype(FLOAT)
        low, high = values.min(initial=0), values.max(initial=0)
        if not high - low < np.inf:  # NaN is not
            return True
    reference_dynamic_quantize_linear(values, out_dtype=y.dtype, out=(y, scale, zero_point))
    return None
