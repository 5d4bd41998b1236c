"""Whether a commit is slower than another.

Exit codes: 0, no slowdown (or nothing that is timed was touched); 1, a slowdown that two runs found; 2, no verdict.
"""

import argparse
import contextlib
import sys
import tempfile
from pathlib import Path

from . import cells, changes, environments, turns, verdict
from .changes import GateError
from .processes import ask_all, started
from .report import report

REPOSITORY = Path(__file__).parents[2]
ROUNDS = 21
THRESHOLD = 1.05


def main(arguments=None):
    """Run the gate, and return the exit code."""
    args = parse_arguments(arguments)
    try:
        return run(args)
    except GateError as error:
        print(f"gate: no verdict: {error}", file=sys.stderr)
        return verdict.WITHHELD


def parse_arguments(arguments):
    parser = argparse.ArgumentParser(
        prog=".ci/benchmark", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("base", metavar="BASE", help="a commit")
    parser.add_argument("head", metavar="HEAD", nargs="?", default="HEAD", help="another; default: the one checked out")
    parser.add_argument("--all", action="store_true", help="time cases of all operators, whatever was changed")
    parser.add_argument(
        "--tables",
        nargs="+",
        default=(),
        metavar="TABLE",
        help="only cases of these tables, which compare.py --help lists",
    )
    parser.add_argument(
        "--cases", default="", metavar="TEXT", help="instead of the representative cases all whose name contains this"
    )
    parser.add_argument(
        "--limit", type=at_least(1), default=cells.PER_TABLE, metavar="N", help="cases of a table; default: %(default)s"
    )
    parser.add_argument(
        "--turns",
        type=at_least(verdict.FEWEST_ROUNDS),
        default=ROUNDS,
        metavar="N",
        help=f"rounds for each case, at least {verdict.FEWEST_ROUNDS}; default: %(default)s",
    )
    parser.add_argument(
        "--threshold", type=above_one, default=THRESHOLD, metavar="X", help="the least slowdown; default: %(default)s"
    )
    parser.add_argument("--env-dir", type=Path, metavar="DIR", help="keep the environments here, for the next run")
    parser.add_argument(
        "--python", metavar="PATH", help="use this interpreter's packages, with setuptools, instead of installing any"
    )
    return parser.parse_args(arguments)


def at_least(least):
    def number(text):
        if not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"{text!r} is no number of at least {least}")
        return int(text)

    return number


def above_one(text):
    with contextlib.suppress(ValueError):
        if 1 < float(text) < 100:
            return float(text)
    raise argparse.ArgumentTypeError(f"{text!r} is no number between 1 and 100")


def run(args):
    base, head = (changes.commit_of(REPOSITORY, name) for name in (args.base, args.head))
    module_map = changes.read_map()
    check_tables(args.tables, module_map)
    groups = list(module_map["groups"])
    if not args.all:
        touched = changes.touched(REPOSITORY, base, head)
        groups = changes.groups_to_time(touched, module_map)
        if not groups:
            listed = f": {', '.join(touched)}" if touched else ""
            print(f"Nothing that is timed was touched between {base[:12]} and {head[:12]}{listed}.")
            return verdict.QUIET
    with contextlib.ExitStack() as stack:
        folder = args.env_dir or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="dmlcpu-gate-")))
        sides = environments.make(REPOSITORY, base, head, folder, args.python)
        hello, chosen = prepare(sides, module_map, groups, args)
        outcome = measure(sides, chosen, args)
    print(report(outcome, hello, f"{head[:12]} compared with {base[:12]}"))
    return outcome.exit_code


def check_tables(names, module_map):
    """Refuse names that no table has, before environments are made. A test checks that the map has all tables."""
    tables = list(dict.fromkeys(table for texts in module_map["groups"].values() for table in texts))
    if unknown := set(names) - set(tables):
        raise GateError(f"no table {', '.join(sorted(unknown))}; there are {', '.join(tables)}")


def why_none(args):
    """Return why no case is timed."""
    of_tables = f" of the tables {', '.join(args.tables)}" if args.tables else ""
    with_text = f" with {args.cases!r} in its name" if args.cases else ""
    ending = "exists" if args.all else "is affected by the change; --all times cases whatever was changed"
    return f"no case{of_tables}{with_text} {ending}"


def prepare(sides, module_map, groups, args):
    """Check that the sides differ in dmlcpu alone, choose the cells, and compile their kernels."""
    with started(sides) as processes:
        hello = ask_all(processes, "hello")
        check_environments(sides, hello)
        tables = processes["head"].ask("tables")
        chosen = cells.choose(tables, module_map, groups, args.tables, args.cases, args.limit)
        if not chosen:
            raise GateError(why_none(args))
        cold = {name: environments.not_warm(side, chosen) for name, side in sides.items()}
        if any(cold.values()):
            note("compiling")
        for cell in chosen:
            ask_all({name: processes[name] for name in sides if cell in cold[name]}, "build", **cell._asdict())
    for side in sides.values():
        environments.set_warm(side, chosen)
    return hello["head"], chosen


def check_environments(sides, hello):
    """Refuse sides that differ in more than dmlcpu, or whose dmlcpu is not their own."""
    for name, side in sides.items():
        if not Path(hello[name]["dmlcpu"]).is_relative_to(side.folder):
            raise GateError(f"{name} imports dmlcpu from {hello[name]['dmlcpu']}, which is not its own environment")
    if hello["base"]["versions"] != hello["head"]["versions"]:
        raise GateError(f"the versions differ: base has {hello['base']['versions']}, head {hello['head']['versions']}")


def measure(sides, chosen, args):
    """Time the cells; what is flagged is timed again, in fresh processes and the opposite order."""
    first = timed(sides, chosen, args, reverse=False)
    again = verdict.flagged(first, args.threshold)
    second = timed(sides, again, args, reverse=True) if again else []
    return verdict.conclude(first, second, args.threshold)


def timed(sides, chosen, args, reverse):
    todo = [*cells.CONTROLS, *chosen]

    def progress(cell):
        note(f"{'again: ' if reverse else ''}{todo.index(cell) + 1} of {len(todo)}: {cell}")

    return turns.measure(sides, todo, args.turns, progress, reverse)


def note(text):
    print(f"gate: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
