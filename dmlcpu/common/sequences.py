"""Sequences along an axis, in the form of the kernels' records."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from dmlcpu.common.forms import Form
from dmlcpu.kernels.walk import merge, walk_of
from dmlcpu.runtime.memory import first_word, word_strides


class Sequences(NamedTuple):
    """The sequences of several tensors, one in each at a time."""

    rows: int
    columns: int  # adjacent sequences in the first tensor, one word apart; 1: none
    step: int  # words from one element to the next in the first tensor
    is_packed: bool  # no gaps between sequences in the first tensor
    walk: dict[str, Any]  # the fields of WALK
    tensors: list[dict[str, Any]]  # for each tensor the fields of SEQUENCES


def sequences_of(axis: int, tensors: Sequence[tuple[Form, int]]) -> Sequences:
    """Return the sequences along an axis. tensors: forms of one shape except along the axis, and bytes of a word."""
    steps = [word_strides(form.steps, word) for form, word in tensors]
    shape = tensors[0][0].shape
    others = [d for d in range(len(shape)) if d != axis]
    sizes, *strides = merge([shape[d] for d in others], *[[own[d] for d in others] for own in steps])
    step = steps[0][axis]
    return Sequences(
        rows=math.prod(sizes),
        columns=sizes[-1] if strides[0][-1] == 1 else 1,
        step=step,
        is_packed=step == 1 and strides[0] == [shape[axis]],
        walk=walk_of(sizes),
        tensors=[
            {"start": first_word(form.shape, own), "step": own[axis], "strides": merged}
            for (form, _), own, merged in zip(tensors, steps, strides, strict=True)
        ],
    )
