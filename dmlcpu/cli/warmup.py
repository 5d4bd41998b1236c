"""``dmlcpu warmup`` compiles kernels into the cache ahead of time; later processes only load them."""

import argparse
import os
import time
from collections.abc import Sequence

from dmlcpu.cli.shared import DONE, FAILED, REFUSED, check_environment, complain
from dmlcpu.common.imports import extra
from dmlcpu.operators.table import OPERATORS, Operator

SEARCH = "search"  # not an operator, but it has kernels

SUMMARY = "compile kernels into the cache"
EPILOG = """\
examples:
  dmlcpu warmup
  dmlcpu warmup --ops top_k scatter_nd --types float32 int64

Exit codes: 0 done, 1 no folder for compiled kernels can be written to, 2 usage."""


def add_options(warmup: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    types = list(dict.fromkeys(name for operator in OPERATORS.values() for name in operator.types))
    for kind, names in (("op", [*OPERATORS, SEARCH]), ("type", types)):
        text = f"some of {', '.join(names)} (default: all)"
        warmup.add_argument(f"--{kind}s", nargs="+", choices=names, default=names, metavar=kind.upper(), help=text)


def main(args: argparse.Namespace) -> int:
    """Run the command."""
    cases = chosen(args.ops, args.types)
    if not cases:
        allowed = "; ".join(f"{op}: {', '.join(types_of(op))}" for op in args.ops)
        return complain(f"none of these operators has these types; allowed: {allowed}", REFUSED)
    check_environment()
    if reason := nowhere():
        return complain(f"compiled kernels would be lost: {reason}", FAILED)
    print(warm_up(cases))
    return DONE


def nowhere() -> str | None:
    """Return why compiled kernels cannot be kept; None if they can."""
    from dmlcpu.config import cache_folder
    from dmlcpu.runtime.compilation import can_compile

    folder = cache_folder()
    if not can_compile() or os.path.isabs(folder):
        return None
    return f"{folder.removeprefix('none: ')}. Set NUMBA_CACHE_DIR to a folder that can be written to"


def chosen(ops: Sequence[str], types: Sequence[str]) -> list[tuple[str, str]]:
    """Return the pairs (operator, type) where the operator has the type."""
    return [(op, name) for op in ops for name in types_of(op) if name in types]


def types_of(op: str) -> tuple[str, ...]:
    """Return the types that an operator, or search, has kernels for."""
    if op == SEARCH:
        from dmlcpu.search.examples import TYPES

        return TYPES
    return OPERATORS[op].types


def warm_up(cases: Sequence[tuple[str, str]]) -> str:
    """Compile the kernels of the cases, with a progress bar if stderr is a terminal; return a summary."""
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
            if op == SEARCH:
                _compile_search(name)
            else:
                _compile(OPERATORS[op], name)
    compiled, cached = (after - before for after, before in zip(_counts(), (compiled, cached), strict=True))
    seconds = time.perf_counter() - start
    return f"compiled {compiled} kernels in {seconds:.1f} s, {cached} were in the cache already: {cache_folder()}"


def _compile(operator: Operator, name: str) -> None:
    from dmlcpu.operators.bind import bind
    from dmlcpu.runtime.threads import use_budget

    # grain=1 makes small examples run on two threads, so that the launchers are also compiled. The examples are made
    # within it, as some pack a matrix.
    with use_budget(2, grain=1):
        for example in operator.examples(name):
            with use_budget(2, grain=1, kernel=example.kernel):
                operator.function(**example.arguments)
            with use_budget(1, kernel=example.kernel):  # kept calls
                bind(operator.function, **example.arguments)()


def _compile_search(name: str) -> None:
    from dmlcpu.runtime.threads import use_budget
    from dmlcpu.search.examples import examples, quantized_examples
    from dmlcpu.search.functions import knn
    from dmlcpu.search.int8_index import Int8Index

    for threads in (2, 1):
        with use_budget(threads, grain=1):
            for example in examples(name):
                knn(**example)
            for vectors, metric, queries in quantized_examples() if name == "float32" else ():
                Int8Index(vectors, metric, floats=True).search(queries, 3, rescore=2)


def _counts() -> tuple[int, int]:
    """Return how many kernels this process has compiled, and how many it has loaded from the cache."""
    from dmlcpu.kernels import registry
    from dmlcpu.runtime.threads import layer

    kernels = [entry.kernel.share for entry in registry.available()]
    statistics = [compiled.stats for compiled in (*layer().compiled(), *kernels)]
    misses = sum(sum(each.cache_misses.values()) for each in statistics)
    hits = sum(sum(each.cache_hits.values()) for each in statistics)
    return misses, hits
