"""A command for each operator of the table: the arguments of its function are the command's options."""

import argparse
import functools
import inspect
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, get_args

from numpy.typing import ArrayLike

from dmlcpu.cli import batch
from dmlcpu.cli.shared import REFUSED, complain
from dmlcpu.operators.table import OPERATORS

# The parameters of a numpydoc docstring, each with its type and an indented text.
_SECTION = re.compile(r"^ *Parameters\n *-+\n(.*?)\n\n *\w+\n *-+\n", re.MULTILINE | re.DOTALL)
_SPELLED = {"True": True, "False": False, "None": None}  # by Python; JSON's spellings are read anyway
_INFINITE = re.compile(r"[+-]?(inf|infinity|nan)", re.IGNORECASE)
_PARAMETER = re.compile(r"^(\w[\w, ]*) : (.*)((?:\n +.*)*)", re.MULTILINE)


def _epilog(name: str, required: Iterable[str]) -> str:
    spelled, needed = name.replace("_", "-"), "".join(f" --{each.replace('_', '-')} ..." for each in required)
    results = OPERATORS[name].results
    suffix = "npz" if len(results) > 1 else "npy"
    return f"""\
Arrays are files (.npy, .npz, .safetensors, .zarr, .pb); FILE::NAME is an array in a file
that holds several. Inputs may also be .h5 files, and URLs (s3://, gs://, https://) of
.npy, .npz and .zarr. OUT and other files may contain {{stem}}, {{name}}, {{array}}, {{path}} and
{{number}} of each IN.

examples:
  dmlcpu {spelled} in/*.npy -o out/{needed}    to out/NAME.{suffix}
  dmlcpu {spelled} in/*.npy -o '{results[0]}=out/{{stem}}.npy'{needed}

{batch.EXIT_CODES}"""


def add_options(name: str, parser: argparse.ArgumentParser) -> None:
    """Add the arguments of an operator's command."""
    from dmlcpu.jobs.operations import operation_of

    operator, operation = OPERATORS[name], operation_of(name, Path())
    signature = inspect.signature(operator.function, eval_str=True).parameters
    documented = _documented(operator.function)  # empty with -OO, which removes docstrings
    first, *others = operation.parameters
    files = ": ".join((f"files of {first}", *documented.get(first, ())[:1]))
    parser.add_argument("files", nargs="+", metavar="IN", help=files)
    results = ", ".join(operator.results)
    where = f"a file, a folder, or RESULT=FILE for some of the results ({results}); may be given several times"
    parser.add_argument("-o", "--output", action="append", required=True, metavar="OUT", help=where)
    dtype = "read the elements of IN as this type, as in --dtype bfloat16: .npy files hold bfloat16 as |V2"
    parser.add_argument("--dtype", metavar="NAME", help=dtype)
    options = parser.add_argument_group(f"arguments of {name}")
    array_types = set(get_args(ArrayLike) or [ArrayLike])
    for parameter in others:
        annotation = signature[parameter].annotation
        is_array = array_types <= set(get_args(annotation) or [annotation])
        options.add_argument(
            *([f"-{parameter}"] if len(parameter) == 1 else []),
            f"--{parameter.replace('_', '-')}",
            dest=f"argument_{parameter}",
            required=parameter in operation.required,
            default=argparse.SUPPRESS,
            type=functools.partial(_value, is_array=is_array),
            metavar="FILE|VALUE" if is_array else "VALUE",
            help=". ".join(filter(None, documented.get(parameter, ()))).replace("%", "%%"),
        )
    batch.add_run_options(parser, "none")
    parser.epilog = _epilog(name, operation.required[1:])


def _documented(function: Any) -> dict[str, tuple[str, str]]:
    """Return type and first sentence of each parameter in a docstring, without what cannot be in a file."""
    section = _SECTION.search((inspect.getdoc(function) or "") + "\n\nEnd\n---\n")
    return {
        name: (kind.replace(", or PackedMatrix", ""), _first_sentence(" ".join(text.split())))
        for names, kind, text in _PARAMETER.findall(section[1] if section else "")
        for name in names.split(", ")
    }


def _first_sentence(text: str) -> str:
    sentences = [each for each in re.split(r"(?<=\.) ", text) if "`pack_b`" not in each]
    return sentences[0].rstrip(".").replace("`", "").replace("*", "") if sentences else ""


def _value(text: str, *, is_array: bool) -> tuple[str, Any]:
    """Return the member of jobs for an option, and its value: JSON, or a number or a constant as Python spells it."""
    from dmlcpu.files.formats import SUFFIXES, known
    from dmlcpu.jobs.job import split_name

    if text in _SPELLED:
        return "attrs", _SPELLED[text]
    if _INFINITE.fullmatch(text):
        return "attrs", float(text)
    try:
        return "attrs", json.loads(text)
    except ValueError:
        if not is_array:
            return "attrs", text
    if not known(split_name(text, Path())[0]):
        raise argparse.ArgumentTypeError(f"{text!r}; allowed: a number, a list, or a file ({', '.join(SUFFIXES)})")
    return "inputs", text


def main(name: str, args: argparse.Namespace) -> int:
    """Run an operator's command."""
    from dmlcpu.jobs.entries import Listing
    from dmlcpu.jobs.faults import Place
    from dmlcpu.jobs.operations import operation_of

    spelled = name.replace("_", "-")
    members: dict[str, Any] = {"op": name, "files": args.files, "inputs": {}, "attrs": {}}
    for key, value in vars(args).items():
        if key.startswith("argument_"):
            where, given = value
            members[where][key.removeprefix("argument_")] = given
    output = _output(args.output, OPERATORS[name].results)
    if output is None:
        several = f"a file or a folder, or RESULT=FILE for some of {', '.join(OPERATORS[name].results)}"
        return complain(f"{spelled}: -o is {' '.join(args.output)}; allowed: {several}", REFUSED)
    for given, path in zip(args.output, [output] if isinstance(output, str) else output.values(), strict=False):
        if len(args.files) > 1 and "{" not in path:
            folder = given.removesuffix(Path(path).suffix)
            found = f"-o is {given} for {len(args.files)} inputs"
            return complain(f"{spelled}: {found}; allowed: a folder: {folder}/", REFUSED)
    members["output"] = output
    if args.dtype is not None:
        members["inputs"][operation_of(name, Path()).first] = {"path": "{path}", "dtype": args.dtype}
    place = Place(spelled, options=functools.partial(_option, name))
    return batch.run(Listing(place.where, Path(), [(place, members)]), args)


def _option(name: str, field: str) -> str:
    """Return how the command spells a member of its jobs."""
    member, _, argument = field.partition(".")
    if member == "output":
        return "-o"
    if member not in ("inputs", "attrs"):
        return field
    from dmlcpu.jobs.operations import operation_of

    first = operation_of(name, Path()).first or ""
    return argument.replace(first, "IN", 1) if re.match(rf"{first}\b", argument) else f"--{argument.replace('_', '-')}"


def _output(given: list[str], results: tuple[str, ...]) -> str | dict[str, str] | None:
    """Return the path of each result, or of all; None if `-o` has neither of its two forms."""
    pairs = [text.partition("=") for text in given]
    if not all(path or not equals for _, equals, path in pairs) or "" in given:
        return None
    if all(equals and name in results for name, equals, _ in pairs):
        return {name: _folder_or_file(path, ".npy") for name, _, path in pairs}
    if len(given) > 1 or re.match(r"\w+=", given[0]):
        return None
    return _folder_or_file(given[0], ".npz" if len(results) > 1 else ".npy")


def _folder_or_file(output: str, suffix: str) -> str:
    """Return the path of a result; a folder stands for a file in it with the input's name."""
    from dmlcpu.files.formats import known

    stripped = output.rstrip("/\\")
    if (found := known(stripped)) and found.check:  # there may be a folder of this name: an earlier result
        return stripped
    is_folder = output.endswith(("/", "\\")) or Path(output).is_dir()
    return f"{output.rstrip('/')}/{{stem}}{suffix}" if is_folder else output
