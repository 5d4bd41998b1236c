"""``dmlcpu info``: versions, instruction sets, threads and kernels; or their measured speed."""

import argparse
import json

from dmlcpu.cli.shared import DONE, check_environment, tell

SUMMARY = "show versions, instruction sets, threads, kernels and the cache folder, or measure their speed"


def add_options(info: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    info.add_argument("--json", action="store_true", help="print JSON")
    measure = (
        "show instead how fast this machine reads, copies and multiplies, the fraction that each operator reaches, "
        "and what would make it faster; takes a few seconds"
    )
    info.add_argument("--measure", action="store_true", help=measure)


def main(args: argparse.Namespace) -> int:
    """Run the command."""
    check_environment()
    if args.measure:
        from dmlcpu.jobs.progress import COMPILING
        from dmlcpu.measure import measurement

        found = measurement.measure(lambda: tell(COMPILING))
        data, text = measurement.as_data(found), measurement.as_text(found)
    else:
        from dmlcpu import config

        data = config.config()
        text = config.as_text(data)
    print(json.dumps(data, indent=2) if args.json else text)
    return DONE
