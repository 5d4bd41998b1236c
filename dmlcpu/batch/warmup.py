"""Compiling kernels ahead of time, into the cache, so that no later process waits for them."""

import time
from collections.abc import Sequence

from dmlcpu.common.extras import extra
from dmlcpu.operators.table import OPERATORS, Operator


def chosen(ops: Sequence[str], types: Sequence[str]) -> list[tuple[str, str]]:
    """Return the pairs (operator, type) of these operators and types that there are."""
    return [(op, name) for op in ops for name in OPERATORS[op].types if name in types]


def warm_up(cases: Sequence[tuple[str, str]]) -> str:
    """Compile what the cases need, with a progress bar where stderr is a terminal; return what was done, in words."""
    tqdm = extra("tqdm").tqdm

    from dmlcpu.config import cache_folder
    from dmlcpu.runtime.compilation import can_compile

    if not can_compile():
        return "nothing to compile: compilation is switched off (NUMBA_DISABLE_JIT), the reference gives all results"
    start = time.perf_counter()
    compiled, cached = _counts()
    with tqdm(cases, desc="Compiling", unit="case", disable=None, leave=False) as progress:
        for op, name in progress:
            progress.set_postfix_str(f"{op} {name}")
            _compile(OPERATORS[op], name)
    compiled, cached = (after - before for after, before in zip(_counts(), (compiled, cached), strict=True))
    seconds = time.perf_counter() - start
    return f"compiled {compiled} kernels in {seconds:.1f} s, {cached} were in the cache already: {cache_folder()}"


def _compile(operator: Operator, name: str) -> None:
    from dmlcpu.runtime.threads import limits

    # Every element being worth a share, kernels are compiled, and what launches them on threads; matrices are packed
    # while examples are made.
    with limits(2, grain=1):
        for example in operator.examples(name):
            with limits(2, grain=1, kernel=example.kernel):
                operator.function(**example.arguments)


def _counts() -> tuple[int, int]:
    """Return how many kernels this process has compiled, and how many it has found in the cache."""
    from dmlcpu.kernels import registry
    from dmlcpu.runtime.threads import layer

    kernels = [entry.kernel.share for entry in registry.available()]
    statistics = [compiled.stats for compiled in (*layer().compiled(), *kernels)]
    return (
        sum(sum(each.cache_misses.values()) for each in statistics),
        sum(sum(each.cache_hits.values()) for each in statistics),
    )
