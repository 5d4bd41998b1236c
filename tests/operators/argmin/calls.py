"""Calls of argmin, which are those of argmax."""

from functools import partial

from operators.argmax import calls
from operators.argmax.calls import (
    call_in_blocks as call_in_blocks,
    call_with_results_of as call_with_results_of,
    large_calls as large_calls,
)

parallel_call = partial(calls.parallel_call, operator="argmin")
random_call = partial(calls.random_call, operator="argmin")
