"""Calls of argsort, of the arrays of sort_with_indices."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from operators.sort_with_indices import calls as others
from operators.sort_with_indices.calls import call_in_blocks as call_in_blocks
from samples import Sample


def parallel_call(rng: np.random.Generator) -> Sample:
    return Sample("argsort", others.parallel_call(rng).args, {})


def large_calls(rng: np.random.Generator) -> Iterator[dict[str, Any]]:
    yield from others.large_calls(rng)


def call_with_results_of(nbytes: int) -> dict[str, Any]:
    return {"x": np.zeros(nbytes // 8, np.int64)}


def random_call(rng: np.random.Generator) -> Sample:
    x = others.random_array(rng)
    return Sample("argsort", (x,), others.random_options(rng, x))
