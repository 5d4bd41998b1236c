"""The kind of an update, and when indices are validated; for plans and for compiled callers."""

from dmlcpu.kernels.scatter_nd.reduction import ADD, OVERWRITE, PLAIN
from dmlcpu.kernels.scatter_nd.work import (
    BEFOREHAND,
    BLOCK,
    BY_BLOCK,
    DROP,
    ELEMENTS,
    PLACES,
    RAISE,
    ROWS,
    SLICES,
    SPECULATIVE,
)
from dmlcpu.runtime.jit import shared


@shared
def kind_of(size: int, is_even: bool, has_places: bool, in_vectors: bool, reduction: int) -> int:
    """Return the kind of an update of `size` words.

    is_even: it is one run, evenly spaced from the next; has_places: it has one index, which is a place in the output.
    """
    if is_even and size == 1:
        return PLACES if has_places else ELEMENTS
    return ROWS if is_even and in_vectors and reduction in (OVERWRITE, ADD) else SLICES


@shared
def is_serial(kind: int, reduction: int, half: int) -> bool:
    """Return whether shares own no ranges of the output: true for single elements, except halves that are reduced.

    Skipping an update of a half (float16, bfloat16) takes less time than reducing it, so halves have owners.
    """
    return kind in (ELEMENTS, PLACES) and (reduction == OVERWRITE or half == PLAIN)


@shared
def validation_of(mode: int, count: int, can_copy: bool) -> int:
    """Return when indices are validated, if updates are not partitioned and the output is in order.

    can_copy: copying the output takes less time than reading all indices once more.
    """
    if mode == RAISE and 0 < count <= BLOCK:
        return BY_BLOCK
    return SPECULATIVE if mode == RAISE and count > BLOCK and can_copy else BEFOREHAND


@shared
def writing_mode_of(mode: int, validation: int) -> int:
    """Return the mode of the kernels that write: validated indices are in range, unless they were changed since."""
    return DROP if mode == RAISE and validation == BEFOREHAND else mode
