"""Exit codes, messages and argument types that all commands share."""

import argparse
import contextlib
import sys
from collections.abc import Callable

from dmlcpu.common.secrets import without_secrets

DONE, FAILED, REFUSED = 0, 1, 2
INTERRUPTED = 130  # the exit code that shells expect after Ctrl+C


class WrongEnvironmentError(Exception):
    """An environment variable is not valid; commands print the message and exit."""


def complain(message: str, code: int) -> int:
    """Print a message to standard error; return the exit code."""
    tell(message)
    return code


def tell(message: str) -> None:
    """Print a message to standard error, if it is still open."""
    with contextlib.suppress(OSError):
        print(f"dmlcpu: {without_secrets(message)}", file=sys.stderr)


def show(text: str) -> None:
    """Print to standard output; characters of file names that cannot be encoded are escaped."""
    encoding = sys.stdout.encoding if sys.stdout else "utf-8"
    print(text.encode(encoding, "backslashreplace").decode(encoding))


def at_least(least: int) -> Callable[[str], int]:
    """Return an argument type: integers from `least` on."""

    def integer(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = least - 1
        if number < least:
            raise argparse.ArgumentTypeError(f"{text!r}; allowed: an integer of at least {least}")
        return number

    return integer


def seconds(text: str) -> float:
    """Return the argument as seconds: `run_jobs` refuses those that are not positive."""
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}; allowed: more than 0 seconds") from None


def common_options() -> argparse.ArgumentParser:
    """Return a parent of all parsers. Its options have no default: they may come before or after a command."""
    common = argparse.ArgumentParser(add_help=False)
    debug = "print to stderr which kernels are chosen, and why"
    common.add_argument("--debug", "--verbose", action="store_true", default=argparse.SUPPRESS, help=debug)
    return common


def check_environment() -> None:
    """Refuse environment variables that would otherwise fail in the middle of a command."""
    from dmlcpu.runtime import isa, results, threads

    try:
        isa.allowed()
        threads.budget()
        results.keeps()
    except ValueError as error:
        raise WrongEnvironmentError(str(error)) from None


def flush() -> None:
    """Flush standard output."""
    if sys.stdout is not None:  # None: the process was started with its output closed
        sys.stdout.flush()
