"""The parser of the whole command line."""

import argparse
import difflib
import functools
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from dmlcpu import __version__
from dmlcpu.cli import batch, info, operators, run, search, status, warmup
from dmlcpu.cli.shared import common_options
from dmlcpu.common.imports import extra
from dmlcpu.operators.table import OPERATORS

_Handler = Callable[[argparse.Namespace], int]
_SHELLS = ("bash", "zsh", "tcsh")  # shtab's
_DESCRIPTION = "DirectML's top-k, scatter and int8 matmul on any CPU."
_EPILOG = """\
examples:
  dmlcpu top-k scores/*.npy -o best/ --k 10    an operator on many files
  dmlcpu batch jobs.toml                       all jobs of a file; run it again to resume
  dmlcpu status jobs.toml                      which jobs are done, which have failed, and why
  dmlcpu run model.json                        run a DxDispatch model
  dmlcpu search build vectors.npy -o c.index   build an index of vectors for `search query`
  dmlcpu run model.json -i 100 -v 1            time each dispatch 100 times
  dmlcpu warmup --ops top_k                    compile kernels before they are needed
  dmlcpu info --json                           versions, instruction sets, threads, kernels
  dmlcpu info --measure                        how fast this machine is, and what would make it faster

Exit codes: 0 done, 1 failed while running, 2 bad model, jobs or usage, 130 interrupted."""


_NEGATIVE = re.compile(r"-(inf(inity)?|nan|\.?\d[\d.e+-]*)", re.IGNORECASE)


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """Usage names what is required, and "[options]" for the rest."""

    def add_usage(self, usage: str | None, actions: Iterable[argparse.Action], groups: Any, prefix: Any = None) -> None:
        needed = [action for action in actions if action.required]
        if prefix is None:  # not the prefix of the commands' names
            needed.insert(0, argparse.Action(["options"], "options", nargs=0))
        super().add_usage(usage, needed, (), prefix)


def _meant(given: object, known: Iterable[object]) -> str:
    """Return the hint at the most similar name, for a message; it may be empty."""
    like = difflib.get_close_matches(str(given), map(str, known), n=1)
    return f" (did you mean {like[0]!r}?)" if like else ""


class _Parser(argparse.ArgumentParser):
    """A parser that adds its arguments on use: those of an operator come from its function."""

    add_options: Callable[[argparse.ArgumentParser], None] | None = None

    def fill(self) -> None:
        """Add the arguments, if that has not been done."""
        if self.add_options is not None:
            add, self.add_options = self.add_options, None
            add(self)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            allowed = ", ".join(map(str, action.choices))
            raise argparse.ArgumentError(action, f"{value!r}{_meant(value, action.choices)}; allowed: {allowed}")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        self.fill()
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:  # reported here, with this command's usage
            hint = _meant(unknown[0].partition("=")[0], self._option_string_actions)
            self.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")
        return found, unknown


def spelled(argv: Sequence[str]) -> list[str]:
    """Return arguments as argparse reads them: commands with hyphens, and negative numbers joined to their options."""
    args: list[str] = []
    for number, each in enumerate(argv):
        if each == "--":  # no option follows
            return [*args, *argv[number:]]
        if each in OPERATORS and all(before.startswith("-") for before in args):
            args.append(each.replace("_", "-"))
        elif _NEGATIVE.fullmatch(each) and args and args[-1].startswith("--") and "=" not in args[-1]:
            args[-1] += f"={each}"
        else:
            args.append(each)
    return args


class _PrintCompletion(argparse.Action):
    """Print the script with which a shell completes commands, options and file names."""

    def __call__(self, parser: argparse.ArgumentParser, namespace: Any, values: Any, option_string: Any = None) -> None:
        shtab = extra("shtab")
        _complete_files(parser, shtab.FILE)
        print(shtab.complete(parser, values))
        parser.exit()


def _complete_files(parser: argparse.ArgumentParser, file_names: object) -> None:
    """Mark the values that shells complete with file names, of all commands: those without choices."""
    if isinstance(parser, _Parser):
        parser.fill()
    for action in parser._actions:
        if isinstance(action.choices, dict):
            for command in action.choices.values():
                _complete_files(command, file_names)
        elif action.choices is None and action.nargs != 0:
            action.complete = file_names  # type: ignore[attr-defined]  # shtab reads it


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    settings: dict[str, Any] = {"allow_abbrev": False, "formatter_class": _Formatter, "parents": [common_options()]}
    parser = _Parser(prog="dmlcpu", description=_DESCRIPTION, epilog=_EPILOG, **settings)
    parser.add_argument("--version", action="version", version=f"dmlcpu {__version__}")
    completion = "print a script that completes commands, options and file names in this shell"
    parser.add_argument("--print-completion", action=_PrintCompletion, choices=_SHELLS, help=completion)
    subparsers = parser.add_subparsers(metavar="COMMAND", required=True, parser_class=_Parser)

    def add(name: str, summary: str, options: Any, handler: _Handler, epilog: str | None = None) -> None:
        description = f"{summary[0].upper()}{summary[1:]}."
        command = subparsers.add_parser(name, help=summary, description=description, epilog=epilog, **settings)
        command.set_defaults(handler=handler)
        command.add_options = options

    add("run", run.SUMMARY, run.add_options, run.main, run.EPILOG)
    add("batch", batch.SUMMARY, batch.add_options, batch.main, batch.EPILOG)
    add("status", status.SUMMARY, status.add_options, status.main, status.EPILOG)
    for name in OPERATORS:
        options, main = functools.partial(operators.add_options, name), functools.partial(operators.main, name)
        add(name.replace("_", "-"), f"run {name} on files", options, main)
    add("search", search.SUMMARY, search.add_options, search.main, search.EPILOG)
    add("warmup", warmup.SUMMARY, warmup.add_options, warmup.main, warmup.EPILOG)
    add("info", info.SUMMARY, info.add_options, info.main)
    return parser
