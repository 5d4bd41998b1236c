"""``dmlcpu status``: the recorded outcomes of the jobs of a file."""

import argparse
import dataclasses
import json

from dmlcpu.cli.shared import DONE, FAILED, REFUSED, complain, show

SUMMARY = "show which jobs of a file are done, have failed, are stale or have not run"
EPILOG = """\
JOBS is a file as for `dmlcpu batch`. A stale job is done, but would run again, because
one of its files or arguments has changed. The command runs no jobs; another process may
be running them. `dmlcpu batch JOBS --dry-run` names the jobs that would run, and prints
the errors of invalid jobs.

examples:
  dmlcpu status jobs.toml
  dmlcpu status jobs.toml --json

Exit codes: 0 all done, 1 some are not done, 2 wrong usage or an invalid file."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("jobs_file", metavar="JOBS", help="a .toml file, or another file of JSON Lines")
    parser.add_argument("--directory", metavar="DIR", help="what paths are relative to (default: the folder of JOBS)")
    where = "where outcomes are recorded (default: JOBS.manifest.jsonl)"
    parser.add_argument("--manifest", metavar="FILE", help=where)
    content = "detect changed inputs by content instead of size and time"
    parser.add_argument("--hash", action="store_true", help=content)
    parser.add_argument("--json", action="store_true", help="print JSON, with the ids of all failed jobs")


def main(args: argparse.Namespace) -> int:
    """Run the command."""
    from dmlcpu.batch import JobsError, ManifestError, jobs_status
    from dmlcpu.errors import DmlError

    try:
        status = jobs_status(args.jobs_file, directory=args.directory, manifest=args.manifest, content_hash=args.hash)
    except (JobsError, ManifestError) as error:
        return complain(str(error), REFUSED)
    except DmlError as error:
        return complain(f"--{error.field} is {error.found}; allowed: {error.allowed}", REFUSED)
    except OSError as error:
        return complain(f"{error.filename or args.jobs_file}: {error.strerror or error}", REFUSED)
    if args.json:
        members = dataclasses.asdict(status) | {"not_right": status.not_right}
        members["slowest"] = [{"id": id_, "seconds": seconds} for id_, seconds in status.slowest]
        members["errors"] = [{"error": error, "count": len(ids), "ids": ids} for error, ids in status.errors.items()]
        print(json.dumps(members))
    else:
        show(str(status))
    return DONE if status.done == status.jobs else FAILED
