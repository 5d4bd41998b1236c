"""``dmlcpu search build | query``: exact search among vectors of floats or bytes, from files to files."""

import argparse
import faulthandler
import os
import re
import sys
from pathlib import Path
from typing import Any

from dmlcpu.cli import batch
from dmlcpu.cli.shared import at_least, common_options

SUMMARY = "build an index of vectors, or search it"
_FILES = """\
Vectors and queries are files (.npy, .npz, .safetensors, .zarr, .pb, .h5) or URLs;
FILE::NAME is an array in a file that holds several. Files that do not fit in memory are
read in blocks."""
_BUILD = f"""\
Vectors are floats, int8 or uint8. Floats are kept and searched exactly by default; see
--floats.
{_FILES}

examples:
  dmlcpu search build vectors.npy -o corpus.index
  dmlcpu search build vectors.npy -o corpus.index --metric cosine --ids ids.npy
  dmlcpu search build night.h5::vectors -o corpus.index --floats rescore

{batch.EXIT_CODES}"""
_QUERY = f"""\
{_FILES}

examples:
  dmlcpu search query corpus.index queries.npy -k 10 -o found.npz
  dmlcpu search query corpus.index queries.npy -k 10 -o found.npz --mask allowed.npy
  dmlcpu search query corpus.index queries.npy -k 10 -o found.npz --dry-run

{batch.EXIT_CODES}"""
EPILOG = f"""\
`dmlcpu search build --help` and `dmlcpu search query --help` list the options. An index is a folder. In a list of jobs
for `dmlcpu batch`, the `op` `build_index` builds an index, and an `op` that is an index searches it.

examples:
  dmlcpu search build vectors.npy -o corpus.index --metric cosine
  dmlcpu search query corpus.index queries.npy -k 10 -o found.npz

{batch.EXIT_CODES}"""

# The arguments of each action that are files, and those that are values.
_ARGUMENTS = {
    "build": (("vectors", "ids", "ranges"), ("metric", "floats")),
    "query": (("queries", "mask", "allowlist", "exclude"), ("k", "rescore")),
}
_SPELLED = {"vectors": "VECTORS", "queries": "QUERIES", "k": "-k"}  # the others are options of their names
_FLOATS = (
    "exact: search floats exactly (default); rescore: search their bytes, and keep floats for query --rescore; drop: "
    "keep bytes only"
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the commands and their arguments."""
    actions = parser.add_subparsers(metavar="ACTION", dest="action", required=True)
    settings: dict[str, Any] = {"allow_abbrev": False, "formatter_class": parser.formatter_class}
    settings["parents"] = [common_options()]
    build = actions.add_parser("build", help="write an index of vectors", epilog=_BUILD, **settings)
    build.add_argument("vectors", metavar="VECTORS", help="a file of vectors (N, D)")
    build.add_argument("-o", "--output", metavar="INDEX", required=True, help="the folder to write")
    build.add_argument("--metric", choices=("ip", "l2", "cosine"), default="ip", help="(default: ip)")
    build.add_argument("--ids", metavar="FILE", help="ids to return instead of positions, integers (N,)")
    build.add_argument(
        "--ranges", metavar="FILE", help="least and greatest values of affine bytes, per dimension: (2, D)"
    )
    build.add_argument("--floats", choices=("exact", "rescore", "drop"), default="exact", help=_FLOATS)
    query = actions.add_parser("query", help="search an index", epilog=_QUERY, **settings)
    query.add_argument("index", metavar="INDEX", help="a folder that `build` wrote")
    query.add_argument("queries", metavar="QUERIES", help="a file of queries (M, D)")
    query.add_argument("-k", type=at_least(0), required=True, metavar="K", help="how many vectors for each query")
    output = "the file of scores and indices to write: .npz, .zarr..."
    query.add_argument("-o", "--output", metavar="OUT", required=True, help=output)
    rescore = "score the K * N best again as floats; the index must be built with --floats rescore"
    query.add_argument("--rescore", type=at_least(1), metavar="N", help=rescore)
    query.add_argument("--mask", metavar="FILE", help="the vectors that may be found, bool (N,) or (M, N)")
    query.add_argument(
        "--allowlist", metavar="FILE", help="the ids that may be found; positions if the index has no ids"
    )
    query.add_argument("--exclude", metavar="FILE", help="the vectors that each query must not find, bool (M, N)")
    for action in (build, query):
        batch.add_run_options(action, "none")


def main(args: argparse.Namespace) -> int:
    """Run the command: a list of one job."""
    from dmlcpu.jobs.entries import Listing
    from dmlcpu.jobs.faults import Place
    from dmlcpu.jobs.operations import BUILD, is_path

    if sys.__stderr__ is not None:
        faulthandler.enable(sys.__stderr__)  # a mapped file that is truncated meanwhile ends the process: it says where
    op = BUILD if args.action == "build" else args.index
    if args.action == "query" and not is_path(op):
        op = os.path.join(os.curdir, op)  # a name without a slash or a suffix would be that of an operation
    files, values = (
        {name: value for name in names if (value := getattr(args, name)) is not None}
        for names in _ARGUMENTS[args.action]
    )
    place = Place(f"search {args.action}", options=_option)
    members = {"op": op, "inputs": files, "attrs": values, "output": args.output}
    return batch.run(Listing(place.where, Path(), [(place, members)]), args)


def _option(field: str) -> str:
    """Return how the commands spell a member of their jobs."""
    member, _, argument = field.partition(".")
    if member in ("op", "output"):
        return "INDEX" if member == "op" else "-o"
    name = re.split(r"\W", argument)[0]
    return argument.replace(name, _SPELLED.get(name, f"--{name}"), 1) if name else field
