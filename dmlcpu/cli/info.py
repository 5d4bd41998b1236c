"""``dmlcpu info``: versions, instruction sets, threads and kernels."""

import argparse
import json

from dmlcpu.cli.shared import DONE, REFUSED, environment_is_right

SUMMARY = "show versions, instruction sets, threads, kernels and the cache folder"


def add_options(info: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    info.add_argument("--json", action="store_true", help="print JSON")


def main(args: argparse.Namespace) -> int:
    """Run the command."""
    from dmlcpu.config import as_text, config

    if not environment_is_right():
        return REFUSED
    shown = config()
    print(json.dumps(shown, indent=2) if args.json else as_text(shown))
    return DONE
