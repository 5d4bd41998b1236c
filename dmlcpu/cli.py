"""The command line: ``dmlcpu run | info | warmup``."""

import argparse
import contextlib
import json
import logging
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence

from dmlcpu import __version__

DONE, FAILED, REFUSED = 0, 1, 2
_INTERRUPTED = 130  # what shells expect of a program that Ctrl+C ended

_DESCRIPTION = "DirectML's top-k, scatter and int8 matmul on any CPU."
_EXIT_CODES = "Exit codes: 0 done, 1 failed while running, 2 bad model or usage."
_EXAMPLES = f"""\
examples:
  dmlcpu run model.json               run a DxDispatch model
  dmlcpu run model.json -i 100 -v 1   time each dispatch 100 times
  dmlcpu warmup --ops top_k           compile kernels before they are needed
  dmlcpu info --json                  versions, instruction sets, threads, kernels

{_EXIT_CODES}"""
_RUN_EXAMPLES = f"""\
Files that the model reads are looked for beside it, then in the current directory; files that it writes go to the
current directory, or where an absolute path says. The whole model is checked before anything runs.

examples:
  dmlcpu run model.json
  dmlcpu run model.json -t 500 -v 1    sample each dispatch for half a second

{_EXIT_CODES}"""
_WARMUP_EXAMPLES = """\
examples:
  dmlcpu warmup
  dmlcpu warmup --ops top_k scatter_nd --types float32 int64"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Parameters
    ----------
    argv : sequence of str, optional
        The arguments; by default those of the process.

    Returns
    -------
    int
        The exit code: 0 done, 1 failed while running, 2 bad model or usage; 130 interrupted.
    """
    try:
        code = _main(argv)
        _flush()
    except BrokenPipeError:  # whoever read the output has gone
        _drop_output()
        return FAILED
    except OSError as error:  # a full disk, most often
        _drop_output()
        return _complain(str(error), FAILED)
    return code


def _main(argv: Sequence[str] | None) -> int:
    try:
        args = _parser().parse_args(argv)
    except SystemExit as exit_:  # argparse has printed help, or what is wrong
        return int(exit_.code or DONE)
    from dmlcpu.batch.faults import MissingExtraError

    with _log_to_stderr(debug=getattr(args, "debug", False)):
        try:
            code: int = args.handler(args)
        except MissingExtraError as error:
            return _complain(str(error), REFUSED)
        except MemoryError:
            return _complain("not enough memory", FAILED)
        except KeyboardInterrupt:
            return _complain("interrupted", _INTERRUPTED)
    return code


def _flush() -> None:
    if sys.stdout is not None:  # None: the process was started with its output closed
        sys.stdout.flush()


def _drop_output() -> None:
    """Send what cannot be written nowhere, or Python complains of it when it ends."""
    try:
        _flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _parser() -> argparse.ArgumentParser:
    from dmlcpu.operators.table import OPERATORS

    common = argparse.ArgumentParser(add_help=False)
    common.add_argument(
        "--debug",
        "--verbose",
        action="store_true",
        default=argparse.SUPPRESS,  # it may stand before or after the command
        help="tell on stderr which kernels are chosen, and why",
    )
    parser = argparse.ArgumentParser(
        prog="dmlcpu",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
        parents=[common],
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"dmlcpu {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)

    def add_command(name: str, summary: str, epilog: str | None = None) -> argparse.ArgumentParser:
        return commands.add_parser(
            name,
            help=summary,
            description=f"{summary[0].upper()}{summary[1:]}.",
            epilog=epilog,
            parents=[common],
            allow_abbrev=False,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )

    run = add_command("run", "run a DxDispatch model", _RUN_EXAMPLES)
    run.set_defaults(handler=_run)
    run.add_argument("model", metavar="MODEL.json", help="the model; comments and trailing commas are allowed")
    _add_timing_options(run)

    info = add_command("info", "show versions, instruction sets, threads, kernels and the cache folder")
    info.set_defaults(handler=_info)
    info.add_argument("--json", action="store_true", help="print JSON")

    warmup = add_command("warmup", "compile kernels into the cache", _WARMUP_EXAMPLES)
    warmup.set_defaults(handler=_warmup)
    ops = list(OPERATORS)
    types = list(dict.fromkeys(name for operator in OPERATORS.values() for name in operator.types))
    warmup.add_argument("--ops", nargs="+", choices=ops, default=ops, metavar="OP", help=_among(ops))
    warmup.add_argument("--types", nargs="+", choices=types, default=types, metavar="TYPE", help=_among(types))
    return parser


def _among(names: Iterable[str]) -> str:
    return f"some of {', '.join(names)} (default: all)"


def _add_timing_options(run: argparse.ArgumentParser) -> None:
    options = run.add_argument_group("timing (DxDispatch's options)")
    options.add_argument(
        "-i",
        "--dispatch_iterations",
        type=_at_least(1),
        default=1,
        metavar="N",
        help="samples to take of each dispatch (default: 1)",
    )
    options.add_argument(
        "-r",
        "--dispatch_repeat",
        type=_at_least(1),
        default=1,
        metavar="N",
        help="runs within a sample; it is their average (default: 1)",
    )
    options.add_argument(
        "-t",
        "--milliseconds_to_run",
        type=_at_least(0),
        metavar="MS",
        help="sample each dispatch for so long, instead of -i times",
    )
    options.add_argument(
        "-w",
        "--warmup_samples",
        type=_at_least(0),
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


def _at_least(least: int) -> Callable[[str], int]:
    def integer(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = least - 1
        if number < least:
            raise argparse.ArgumentTypeError(f"{text!r}; allowed: an integer of at least {least}")
        return number

    return integer


def _run(args: argparse.Namespace) -> int:
    from dmlcpu.batch import ModelError, RunError, Timing, load_model, run_model

    try:
        model = load_model(args.model)
    except ModelError as error:
        return _complain(str(error), REFUSED)
    except OSError as error:
        return _complain(f"{args.model}: {error.strerror}", REFUSED)
    if not _environment_is_right():
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
        _flush()
        return _complain(f"{args.model}: {error}", FAILED)
    return DONE


def _info(args: argparse.Namespace) -> int:
    from dmlcpu.config import as_text, config

    if not _environment_is_right():
        return REFUSED
    shown = config()
    print(json.dumps(shown, indent=2) if args.json else as_text(shown))
    return DONE


def _warmup(args: argparse.Namespace) -> int:
    from dmlcpu.batch.warmup import chosen, warm_up
    from dmlcpu.operators.table import OPERATORS

    cases = chosen(args.ops, args.types)
    if not cases:
        allowed = "; ".join(f"{op}: {', '.join(OPERATORS[op].types)}" for op in args.ops)
        return _complain(f"none of these operators has these types; allowed: {allowed}", REFUSED)
    if not _environment_is_right():
        return REFUSED
    print(warm_up(cases))
    return DONE


def _environment_is_right() -> bool:
    """Check the environment variables that would otherwise fail in the middle of something."""
    from dmlcpu.runtime import isa, results, threads

    try:
        isa.allowed()
        threads.budget()
        results.keeps()
    except ValueError as error:
        _complain(str(error), REFUSED)
        return False
    return True


def _complain(message: str, code: int) -> int:
    print(f"dmlcpu: {message}", file=sys.stderr)
    return code


@contextlib.contextmanager
def _log_to_stderr(*, debug: bool) -> Iterator[None]:
    logger = logging.getLogger("dmlcpu")
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("dmlcpu: %(message)s"))
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG if debug else logging.WARNING)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
