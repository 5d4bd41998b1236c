"""``dmlcpu run``: DxDispatch models."""

import argparse

from dmlcpu.cli.shared import DONE, FAILED, REFUSED, at_least, complain, environment_is_right, flush

SUMMARY = "run a DxDispatch model"
EPILOG = """\
Files that the model reads are looked for beside it, then in the current directory; files that it writes go to the
current directory, or where an absolute path says. The whole model is checked before anything runs.

examples:
  dmlcpu run model.json
  dmlcpu run model.json -t 500 -v 1    sample each dispatch for half a second

Exit codes: 0 done, 1 failed while running, 2 bad model or usage."""


def add_options(run: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    run.add_argument("model", metavar="MODEL.json", help="the model; comments and trailing commas are allowed")
    options = run.add_argument_group("timing (DxDispatch's options)")
    options.add_argument(
        "-i",
        "--dispatch_iterations",
        type=at_least(1),
        default=1,
        metavar="N",
        help="samples to take of each dispatch (default: 1)",
    )
    options.add_argument(
        "-r",
        "--dispatch_repeat",
        type=at_least(1),
        default=1,
        metavar="N",
        help="runs within a sample; it is their average (default: 1)",
    )
    options.add_argument(
        "-t",
        "--milliseconds_to_run",
        type=at_least(0),
        metavar="MS",
        help="sample each dispatch for so long, instead of -i times",
    )
    options.add_argument(
        "-w",
        "--warmup_samples",
        type=at_least(0),
        default=1,
        metavar="N",
        help="first samples to leave out of the median, as long as one remains (default: 1)",
    )
    options.add_argument(
        "-v",
        "--timing_verbosity",
        type=int,
        choices=(0, 1, 2),
        default=0,
        help="0: one line a dispatch (default); 1: initialization, cold and hot samples; 2: every sample as well",
    )


def main(args: argparse.Namespace) -> int:
    """Run the command."""
    from dmlcpu.batch import ModelError, RunError, Timing, load_model, run_model

    try:
        model = load_model(args.model)
    except ModelError as error:
        return complain(str(error), REFUSED)
    except OSError as error:
        return complain(f"{args.model}: {error.strerror}", REFUSED)
    if not environment_is_right():
        return REFUSED
    timing = Timing(
        iterations=args.dispatch_iterations,
        repeat=args.dispatch_repeat,
        milliseconds=args.milliseconds_to_run,
        warmup_samples=args.warmup_samples,
        verbosity=args.timing_verbosity,
    )
    try:
        run_model(model, timing=timing)
    except RunError as error:
        flush()
        return complain(f"{args.model}: {error}", FAILED)
    return DONE
