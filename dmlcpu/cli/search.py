"""``dmlcpu search build | query``: exact search among vectors of floats or bytes, from files to files."""

import argparse
import contextlib
import faulthandler
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from dmlcpu.cli.shared import DONE, FAILED, REFUSED, at_least, check_environment, complain, tell

SUMMARY = "build an index of vectors, or search it"
EPILOG = """\
Vectors are floats, or int8 or uint8. Floats are kept and searched exactly, unless --floats says otherwise. Files (.npy,
.npz, .safetensors, .zarr, .pb) are read in blocks; FILE::NAME is an array in a file that holds several. An index is a
folder; name it NAME.index to use it as the `op` of a job of `dmlcpu batch`.

examples:
  dmlcpu search build vectors.npy -o corpus.index --metric cosine
  dmlcpu search query corpus.index queries.npy -k 10 -o found.npz

Exit codes: 0 done, 1 failed while running, 2 bad files or usage, 130 interrupted."""

_READ = ("vectors", "ids", "ranges", "index", "queries", "mask", "allowlist", "exclude")  # arguments that are files
_FLOATS = ("exact", "rescore", "drop")
_FLOATS_HELP = "what becomes of floats: searched exactly (default), quantized and kept to rescore with, or quantized"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the commands and their arguments."""
    actions = parser.add_subparsers(
        metavar="ACTION", dest="action", required=True, parser_class=argparse.ArgumentParser
    )
    build = actions.add_parser("build", help="write an index of vectors", allow_abbrev=False)
    build.add_argument("vectors", metavar="VECTORS", help="a file of vectors (N, D)")
    build.add_argument("-o", "--output", metavar="INDEX", required=True, help="the folder to write")
    build.add_argument("--metric", choices=("ip", "l2", "cosine"), default="ip", help="(default: ip)")
    build.add_argument("--ids", metavar="FILE", help="ids to return instead of positions, integers (N,)")
    build.add_argument("--ranges", metavar="FILE", help="least and greatest values of affine bytes, (2, D)")
    build.add_argument("--floats", choices=_FLOATS, default="exact", help=_FLOATS_HELP)
    query = actions.add_parser("query", help="search an index", allow_abbrev=False)
    query.add_argument("index", metavar="INDEX", help="a folder that `build` wrote")
    query.add_argument("queries", metavar="QUERIES", help="a file of queries (M, D)")
    query.add_argument("-k", type=at_least(0), required=True, metavar="K", help="how many vectors for each query")
    output = "a file of scores and indices: .npz, .zarr..."
    query.add_argument("-o", "--output", metavar="OUT", required=True, help=output)
    query.add_argument("--rescore", type=at_least(1), metavar="N", help="score the K * N best again as floats")
    query.add_argument("--mask", metavar="FILE", help="which vectors may be found, bool (N,) or (M, N)")
    query.add_argument("--allowlist", metavar="FILE", help="ids, or positions, that may be found")
    query.add_argument("--exclude", metavar="FILE", help="what each query must not find, bool (M, N)")
    for action in (build, query):
        action.add_argument("--quiet", "-q", action="store_true", help="no progress")


def main(args: argparse.Namespace) -> int:
    """Run the command."""
    from dmlcpu.errors import DmlError
    from dmlcpu.files import FileError

    check_environment()
    if sys.__stderr__ is not None:
        faulthandler.enable(sys.__stderr__)  # a mapped file that is truncated meanwhile ends the process: it says where
    try:
        _check_output(args)
        return _build(args) if args.action == "build" else _query(args)
    except (DmlError, FileError) as error:
        return complain(str(error), REFUSED)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        return complain(f"{where}{error.strerror or error}", FAILED if error.errno == 28 else REFUSED)


def _check_output(args: argparse.Namespace) -> None:
    """Refuse an output that is a file, or in a folder, that is read, or the other way round."""
    from dmlcpu.files import FileError
    from dmlcpu.files.remote import is_remote, local
    from dmlcpu.jobs.job import split_name

    target = Path(os.path.realpath(local(args.output)))
    for name in _READ:
        path = getattr(args, name, None)
        if path is None or is_remote(path):
            continue
        source = Path(os.path.realpath(local(split_name(path, Path())[0])))
        if target.is_relative_to(source) or source.is_relative_to(target):
            found = f"{args.output}: {'' if target == source else 'within, or around, '}the file of {name}"
            raise FileError(found, "an output that the search does not read")


def _build(args: argparse.Namespace) -> int:
    from dmlcpu.search.blocks import build, build_floats

    with _opened(args.vectors) as vectors, _progress(args, "building", vectors.shape[0]) as count:
        ids, ranges = _read(args.ids), _read(args.ranges)
        if args.floats == "exact" and vectors.dtype.itemsize > 1 and ranges is None:
            rows = build_floats(vectors, args.output, args.metric, ids=ids, progress=count)
        else:
            keeps = args.floats == "rescore"
            options: dict[str, Any] = {"ids": ids, "ranges": ranges, "keeps_floats": keeps, "progress": count}
            rows = build(vectors, args.output, args.metric, **options)
    if not args.quiet:
        tell(f"{rows:,} vectors in {args.output}")
    return DONE


def _query(args: argparse.Namespace) -> int:
    from dmlcpu.common.cleanup import OnFailure
    from dmlcpu.errors import DmlError
    from dmlcpu.files import create
    from dmlcpu.search.blocks import load_index, results_of, search
    from dmlcpu.search.int8_index import Int8Index

    index = load_index(args.index)
    options: dict[str, Any] = {name: _read(getattr(args, name)) for name in ("mask", "allowlist", "exclude")}
    if args.rescore is not None:
        if not isinstance(index, Int8Index):
            raise DmlError(f"{index.name}.search", "rescore", str(args.rescore), "none: floats are searched exactly")
        options["rescore"] = args.rescore
    with _opened(args.queries) as queries, _progress(args, "searching", queries.shape[0]) as count:
        tensors = results_of(index, queries, args.k, **options)
        writer = create(args.output, tensors, os.urandom(6).hex())
        with OnFailure(writer.discard):
            search(index, queries, args.k, writer.sinks, progress=count, **options)
            writer.finish()
            writer.put_in_place()
    if not args.quiet:
        tell(f"the {args.k} best of {index.ntotal:,} for {tensors['scores'].shape[0]:,} queries in {args.output}")
    return DONE


@contextlib.contextmanager
def _opened(path: str) -> Iterator[Any]:
    """Open a matrix in a file; refusals name the file."""
    from dmlcpu.files import FileError, open_source
    from dmlcpu.jobs.job import split_name

    try:
        source = open_source(*split_name(path, Path()))
    except FileError as error:
        raise FileError(f"{path}: {error.found}", error.allowed) from None
    with source:
        if len(source.shape) != 2:
            raise FileError(f"{path}: an array of {len(source.shape)} dimensions", "a matrix")
        yield source


def _read(path: str | None) -> Any:
    """Return an array of a file, or None without a file."""
    from dmlcpu.files import FileError, open_source
    from dmlcpu.jobs.job import split_name

    if path is None:
        return None
    try:
        with open_source(*split_name(path, Path())) as source:
            return source.read()
    except FileError as error:
        raise FileError(f"{path}: {error.found}", error.allowed) from None


@contextlib.contextmanager
def _progress(args: argparse.Namespace, what: str, rows: int) -> Iterator[Callable[[int], Any]]:
    """Show how many rows are done, where standard error is a terminal; yield what counts them."""
    if args.quiet:
        yield lambda _: None
        return
    from dmlcpu.common.imports import extra

    settings = {"leave": False, "disable": None, "delay": 0.5, "unit": " rows", "unit_scale": True}
    with extra("tqdm").tqdm(desc=what, total=rows, **settings) as bar:
        yield bar.update
