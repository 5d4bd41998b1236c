"""``dmlcpu info`` and ``dmlcpu warmup``."""

import argparse
import json
from collections.abc import Iterable

from dmlcpu.cli.shared import DONE, REFUSED, complain, environment_is_right

INFO_SUMMARY = "show versions, instruction sets, threads, kernels and the cache folder"
WARMUP_SUMMARY = "compile kernels into the cache"
WARMUP_EPILOG = """\
examples:
  dmlcpu warmup
  dmlcpu warmup --ops top_k scatter_nd --types float32 int64"""


def add_info_options(info: argparse.ArgumentParser) -> None:
    """Add the arguments of ``info``."""
    info.add_argument("--json", action="store_true", help="print JSON")


def info(args: argparse.Namespace) -> int:
    """Run ``info``."""
    from dmlcpu.config import as_text, config

    if not environment_is_right():
        return REFUSED
    shown = config()
    print(json.dumps(shown, indent=2) if args.json else as_text(shown))
    return DONE


def add_warmup_options(warmup: argparse.ArgumentParser) -> None:
    """Add the arguments of ``warmup``."""
    from dmlcpu.operators.table import OPERATORS

    ops = list(OPERATORS)
    types = list(dict.fromkeys(name for operator in OPERATORS.values() for name in operator.types))
    warmup.add_argument("--ops", nargs="+", choices=ops, default=ops, metavar="OP", help=_among(ops))
    warmup.add_argument("--types", nargs="+", choices=types, default=types, metavar="TYPE", help=_among(types))


def _among(names: Iterable[str]) -> str:
    return f"some of {', '.join(names)} (default: all)"


def warmup(args: argparse.Namespace) -> int:
    """Run ``warmup``."""
    from dmlcpu.batch.warmup import chosen, warm_up
    from dmlcpu.operators.table import OPERATORS

    cases = chosen(args.ops, args.types)
    if not cases:
        allowed = "; ".join(f"{op}: {', '.join(OPERATORS[op].types)}" for op in args.ops)
        return complain(f"none of these operators has these types; allowed: {allowed}", REFUSED)
    if not environment_is_right():
        return REFUSED
    print(warm_up(cases))
    return DONE
