"""The checked call of scatter_elements."""

from typing import Any, NamedTuple

from dmlcpu.common.arguments import check_choice
from dmlcpu.common.forms import Form, fitting
from dmlcpu.errors import BindingError
from dmlcpu.indexing.elements import check_elements
from dmlcpu.indexing.reductions import MODES, REDUCTIONS, reduction_of

NAME = "scatter_elements"


class Call(NamedTuple):
    """A call, checked except for the values of indices."""

    x: Form
    indices: Form
    updates: Form
    out: Form
    axis: int
    reduction: str = "none"
    mode: str = "raise"
    in_place: bool = False  # x is out
    width: int = 0  # bytes of the words that elements consist of; 0: those of their type


def check(forms: tuple[Any, ...], options: tuple[Any, ...]) -> Call:
    """Return the checked call, or refuse it.

    forms: of x, indices and updates, and out's strides; options: of a Call, in its order.
    """
    x, indices, updates = [Form(*form) for form in forms[:3]]
    axis, reduction, mode, *_ = options
    check_choice(NAME, "reduction", reduction, REDUCTIONS)
    axis = check_elements(NAME, x, indices, axis, mode, MODES)
    reduction_of(NAME, x.dtype, reduction)
    if updates.dtype != x.dtype:
        raise BindingError(NAME, "updates.dtype", str(updates.dtype), f"{x.dtype} (x's type)")
    if updates.shape != indices.shape:
        allowed = f"{indices.shape} (indices.shape; updates are not broadcast)"
        raise BindingError(NAME, "updates.shape", str(updates.shape), allowed)
    return Call(x, indices, updates, Form(x.shape, x.dtype, fitting(forms[3], x.shape)), axis, *options[1:])
