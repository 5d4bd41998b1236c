"""``dmlcpu warmup``: kernels are compiled into the cache ahead of time, so that later processes only load them."""

import argparse
import time
from collections.abc import Sequence

from dmlcpu.cli.shared import DONE, REFUSED, complain, environment_is_right
from dmlcpu.common.extras import extra
from dmlcpu.operators.table import OPERATORS, Operator

SUMMARY = "compile kernels into the cache"
EPILOG = """\
examples:
  dmlcpu warmup
  dmlcpu warmup --ops top_k scatter_nd --types float32 int64"""


def add_options(warmup: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    types = list(dict.fromkeys(name for operator in OPERATORS.values() for name in operator.types))
    for kind, names in (("op", list(OPERATORS)), ("type", types)):
        text = f"some of {', '.join(names)} (default: all)"
        warmup.add_argument(f"--{kind}s", nargs="+", choices=names, default=names, metavar=kind.upper(), help=text)


def main(args: argparse.Namespace) -> int:
    """Run the command."""
    cases = chosen(args.ops, args.types)
    if not cases:
        allowed = "; ".join(f"{op}: {', '.join(OPERATORS[op].types)}" for op in args.ops)
        return complain(f"none of these operators has these types; allowed: {allowed}", REFUSED)
    if not environment_is_right():
        return REFUSED
    print(warm_up(cases))
    return DONE


def chosen(ops: Sequence[str], types: Sequence[str]) -> list[tuple[str, str]]:
    """Return the pairs (operator, type) where the operator has the type."""
    return [(op, name) for op in ops for name in OPERATORS[op].types if name in types]


def warm_up(cases: Sequence[tuple[str, str]]) -> str:
    """Compile the kernels of the cases, with a progress bar where stderr is a terminal; return a line about it."""
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

    # grain=1: examples are small, and run on two threads all the same, so that the launchers are compiled, too. The
    # examples are made within it, as some pack a matrix.
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
