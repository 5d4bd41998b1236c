"""``dmlcpu batch``; runs jobs and shows their outcomes, also for the operators' commands."""

import argparse
import dataclasses
import json
import re
from typing import Any

from dmlcpu.cli.shared import DONE, FAILED, REFUSED, at_least, check_environment, complain, seconds, show, tell

SUMMARY = "run the jobs of a file: operators and models on many files"
EXIT_CODES = "Exit codes: 0 all done, 1 some failed, 2 wrong usage or invalid jobs, 130 interrupted."
EPILOG = f"""\
JOBS is a file of JSON Lines or TOML, or "-": JSON Lines on standard input. A job is
  {{"id": ..., "op": ..., "inputs": {{...}}, "attrs": {{...}}, "output": ...}}
All jobs are checked before any runs. The manifest records the outcome of each. The same
command again runs only the jobs that have not run, have failed or have changed.

examples:
  dmlcpu batch jobs.toml --dry-run            show what would be done
  dmlcpu batch jobs.toml --keep-going         run the valid jobs, list the others
  dmlcpu batch jobs.toml --jobs 4 --log l.jsonl
  dmlcpu batch jobs.toml --scheduler tcp://127.0.0.1:8786

{EXIT_CODES}"""

# Options with the names of arguments: of `plan_jobs` and `run_jobs`, and of `run_jobs` only.
_WHICH = ("force", "retry_failed", "content_hash", "require_chunks")
_PLANNED = ("manifest", "workers", "threads", "max_memory", "scheduler", *_WHICH)
_RUN = ("log", "retries", "timeout", "keep_going", "check_as_you_go")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("jobs_file", metavar="JOBS", help="a .toml file, a JSON Lines file of any other name, or -")
    parser.add_argument("--directory", metavar="DIR", help="what paths are relative to (default: the folder of JOBS)")
    add_run_options(parser, "JOBS.manifest.jsonl; for standard input none")


def add_run_options(parser: argparse.ArgumentParser, manifest: str) -> None:
    """Add the arguments of all commands that run jobs; manifest: the default, in words."""
    what = parser.add_argument_group("what is run")
    what.add_argument("--keep-going", action="store_true", help="run the valid jobs even if others are invalid")
    as_you_go = "check the files of each job just before the job runs, so the first job starts soon"
    what.add_argument("--check-as-you-go", action="store_true", help=as_you_go)
    what.add_argument("--fail-fast", action="store_true", help="stop after the first failure")
    what.add_argument("--max-failures", type=at_least(1), metavar="N", help="stop after N failures")
    chunks = "refuse zarr and HDF5 arrays that lack chunks (default: these read as the fill value)"
    what.add_argument("--require-chunks", action="store_true", help=chunks)
    what.add_argument("--dry-run", action="store_true", help="print the plan of each job, and run nothing")

    again = parser.add_argument_group("running again")
    again.add_argument("--manifest", metavar="FILE", help=f"where outcomes are recorded (default: {manifest})")
    again.add_argument("--force", action="store_true", help="run all jobs, even those recorded as done")
    again.add_argument("--retry-failed", action="store_true", help="run only jobs recorded as failed")
    content = "detect changed inputs by content instead of size and time"
    again.add_argument("--hash", dest="content_hash", action="store_true", help=content)

    how = parser.add_argument_group("how")
    workers = "worker processes (default: 1)"
    how.add_argument("--jobs", dest="workers", type=at_least(1), default=1, metavar="N", help=workers)
    threads = "threads of each worker (default: workers share the cores evenly; on a cluster 1)"
    how.add_argument("--threads", type=at_least(1), metavar="T", help=threads)
    memory = "memory for the arrays of all workers, as in 4G (default: half of the memory; on a cluster 1G a job)"
    how.add_argument("--max-memory", metavar="SIZE", help=memory)
    scheduler = "run on the Dask cluster of this scheduler; 'local': on this machine (the default)"
    how.add_argument("--scheduler", metavar="ADDRESS", help=scheduler)
    retries = "how often a job is retried after its worker was lost, or after a transient error of a file (default: 2)"
    how.add_argument("--retries", type=at_least(0), default=2, metavar="N", help=retries)
    timeout = "seconds after which a job fails; with --timeout, jobs run in worker processes"
    how.add_argument("--timeout", type=seconds, metavar="S", help=timeout)

    report = parser.add_argument_group("what is reported")
    report.add_argument("--json", action="store_true", help="print a summary, or the plan, as JSON on standard output")
    report.add_argument("--log", metavar="FILE", help="append a line of JSON for each job")
    report.add_argument("--quiet", "-q", action="store_true", help="print only failures, no progress")


def main(args: argparse.Namespace) -> int:
    """Run the command."""
    return run(args.jobs_file, args, directory=args.directory)


def run(jobs: Any, args: argparse.Namespace, directory: str | None = None) -> int:
    """Run jobs as the arguments say; return the exit code."""
    from dmlcpu.batch import JobsError, ManifestError, WorkerError, plan_jobs, run_jobs
    from dmlcpu.errors import DmlError

    check_environment()
    planned, others = ({name: getattr(args, name) for name in names} for names in (_PLANNED, _RUN))
    try:
        if args.dry_run:
            return _show_plan(plan_jobs(jobs, directory=directory, **planned), args)
        most = 1 if args.fail_fast else args.max_failures
        result = run_jobs(jobs, directory=directory, max_failures=most, progress=not args.quiet, **planned, **others)
    except JobsError as error:
        if args.json:
            members = ("place", "id", "field", "found", "allowed")
            errors = [{name: getattr(each, name) for name in members} for each in error.faults]
            print(json.dumps({"faults": errors}))
        return complain(str(error), REFUSED)
    except DmlError as error:
        found = re.sub(r"(?<=^given together with )\w+", lambda other: _spelled(other[0]), error.found)
        return complain(f"{_spelled(error.field)} is {found}; allowed: {error.allowed}", REFUSED)
    except (ManifestError, WorkerError) as error:
        return complain(str(error), FAILED if isinstance(error, WorkerError) else REFUSED)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        return complain(f"{where}{error.strerror or error}", REFUSED)
    return _show_result(result, jobs, args)


def _spelled(argument: str) -> str:
    return f"--{argument.replace('_', '-')}"


def _show_result(result: Any, jobs: Any, args: argparse.Namespace) -> int:
    if args.json:
        print(json.dumps(dataclasses.asdict(result)))
    if args.quiet:
        from dmlcpu.jobs.run import lines_of

        for line in lines_of(result.failures):
            tell(line)
    else:
        from dmlcpu.jobs.prepare import manifest_of

        counts = {
            "done": result.done,
            "failed": result.failed,
            "not run": result.not_run,
            "done before": result.done_before,
            "left out, as not recorded as failed": result.left_out,
        }
        parts = [f"{count} {what}" for what, count in counts.items() if count] or ["no jobs"]
        before = "interrupted: " if result.interrupted else ""
        continues = result.interrupted and manifest_of(jobs, args.manifest)
        changed = " without --force" if args.force else ""
        again = f". Run the same command again{changed} to continue." if continues else ""
        tell(f"{before}{', '.join(parts)}, in {result.seconds:.1f} s{again}")
    return int(result.exit_code)


def _show_plan(plan: Any, args: argparse.Namespace) -> int:
    if args.json:
        data = dataclasses.asdict(plan)
        for job, members in zip(plan.jobs, data["jobs"], strict=True):
            members["faults"] = list(map(str, job.faults))
        print(json.dumps(data))
    else:
        show(str(plan))
    if not plan.faults:
        return DONE
    return FAILED if args.keep_going else REFUSED
