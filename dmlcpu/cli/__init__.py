"""The command line: ``dmlcpu run | batch | status | search | warmup | info``, and a command for each operator."""

import contextlib
import logging
import os
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from dmlcpu.cli.shared import DONE, FAILED, INTERRUPTED, REFUSED, WrongEnvironmentError, complain, flush

__all__ = ["DONE", "FAILED", "REFUSED", "main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Parameters
    ----------
    argv : sequence of str, optional
        The arguments; by default those of the process.

    Returns
    -------
    int
        The exit code: 0 done, 1 failed while running, 2 bad model, jobs or usage; 130 interrupted.
    """
    if sys.stderr is None:  # it was closed; libraries must not write to the next file that gets its number
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115 (it stays open)
    try:
        code = _main(argv)
        flush()
    except BrokenPipeError:  # the reader of the output has gone
        _drop(sys.stdout)
        code = FAILED
    except OSError as error:  # a full disk, most often
        _drop(sys.stdout)
        code = complain(str(error), FAILED)
    _drop(sys.stderr)
    return code


def _main(argv: Sequence[str] | None) -> int:
    from dmlcpu.cli.parser import make_parser, spelled
    from dmlcpu.common.imports import MissingExtraError

    try:
        args = make_parser().parse_args(spelled(sys.argv[1:] if argv is None else argv))
    except SystemExit as exit_:  # argparse has printed help, or the error
        return int(exit_.code or DONE)
    except MissingExtraError as error:  # of --print-completion
        return complain(str(error), REFUSED)
    with _log_to_stderr(debug=getattr(args, "debug", False)):
        try:
            code: int = args.handler(args)
        except (MissingExtraError, WrongEnvironmentError) as error:
            return complain(str(error), REFUSED)
        except MemoryError:
            return complain("not enough memory", FAILED)
        except KeyboardInterrupt:
            return complain("interrupted", INTERRUPTED)
    return code


def _drop(stream: Any) -> None:
    """Discard the rest of a stream that cannot be written, or Python reports an error at exit."""
    try:
        if stream is not None:
            stream.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


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
