"""``dmlcpu run``: DxDispatch models."""

import argparse

from dmlcpu.cli.shared import DONE, FAILED, REFUSED, at_least, check_environment, complain, flush

SUMMARY = "run a DxDispatch model"
EPILOG = """\
Files that the model reads are looked up in its folder, then in the current directory.
Files that it writes are relative to the current directory. The whole model is checked
before anything runs.

examples:
  dmlcpu run model.json
  dmlcpu run model.json -t 500 -v 1    sample each dispatch for half a second

Exit codes: 0 done, 1 failed while running, 2 invalid model or wrong usage."""


# Flags, the least value, the default, the placeholder in the help, the help.
_COUNTS = (
    ("-i", "--dispatch_iterations", 1, 1, "N", "samples to take of each dispatch (default: 1)"),
    ("-r", "--dispatch_repeat", 1, 1, "N", "runs within a sample, which is their average (default: 1)"),
    ("-t", "--milliseconds_to_run", 0, None, "MS", "sample each dispatch for MS milliseconds, instead of -i times"),
    ("-w", "--warmup_samples", 0, 1, "N", "first samples that the median omits; the last one counts (default: 1)"),
)
_VERBOSITY = "0: a line for each dispatch (default); 1: also initialization, cold and hot samples; 2: also all samples"


def add_options(run: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    run.add_argument("model", metavar="MODEL.json", help="the model; comments and trailing commas are allowed")
    options = run.add_argument_group("timing (DxDispatch's options)")
    for short, long, least, default, metavar, text in _COUNTS:
        options.add_argument(short, long, type=at_least(least), default=default, metavar=metavar, help=text)
    options.add_argument("-v", "--timing_verbosity", choices=("0", "1", "2"), default="0", help=_VERBOSITY)


def main(args: argparse.Namespace) -> int:
    """Run the command."""
    from dmlcpu.models import ModelError, RunError, Timing, load_model, run_model

    try:
        model = load_model(args.model)
    except ModelError as error:
        return complain(str(error), REFUSED)
    except OSError as error:
        return complain(f"{args.model}: {error.strerror}", REFUSED)
    check_environment()
    timing = Timing(
        iterations=args.dispatch_iterations,
        repeat=args.dispatch_repeat,
        milliseconds=args.milliseconds_to_run,
        warmup_samples=args.warmup_samples,
        verbosity=int(args.timing_verbosity),
    )
    try:
        run_model(model, timing=timing)
    except RunError as error:
        flush()
        return complain(f"{args.model}: {error}", FAILED)
    return DONE
