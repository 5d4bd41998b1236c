"""Arrays in files: opened to be read a region at a time, and written so that no half-written file is ever seen.

Each format is a module and a line of formats.py, found by the suffix of the file's name. A missing library is named in
the error, with the extra that brings it. Nothing is ever unpickled.
"""

import os
from collections.abc import Mapping

from dmlcpu.common.regions import Tensor
from dmlcpu.files.base import FileError as FileError, FileSource as FileSource, Format
from dmlcpu.files.formats import format_of, suffixes_where
from dmlcpu.files.identities import Identity as Identity, identity as identity
from dmlcpu.files.remote import is_remote, local
from dmlcpu.files.targets import HANDLES, HeldWriter, Writer as Writer, resolved, write_whole as write_whole


def open_source(path: str | os.PathLike[str], name: str | None = None, dtype: str | None = None) -> FileSource:
    """Open an array in a file, whose header is checked; raise FileError, OSError, or ImportError of a format's package.

    `name` says which array, if there are several; `dtype` as what the elements are seen: .npy does not know bfloat16.
    """
    text = local(os.fspath(path))
    found = format_of(text)
    if is_remote(text) and not found.is_remote:
        raise FileError("a remote file", ", ".join(suffixes_where(lambda each: each.is_remote)))
    return found.open_source(text, name, dtype)


def create(
    path: str | os.PathLike[str],
    tensors: Mapping[str, Tensor],
    token: str,
    place: str | None = None,
    form: Format | None = None,
) -> Writer:
    """Begin a file of arrays under a temporary name in the folder of its target, or of what that links to.

    `token`: see `Writer`. `place`: where the target must be, with no link that leads elsewhere. `form`: the format; by
    default that of the suffix. Raises what `check_target` does.
    """
    form = form or format_of(path)  # not of the file that it links to, which may have another suffix
    found, target = check_target(place or path, tensors, form, is_real=place is not None and HANDLES)
    if place is not None and target != place:
        raise FileError(f"a link to {target!r}", f"{place!r}, as when the job was checked")
    if found.save:
        return HeldWriter(target, tensors, token, found.save)
    assert found.create  # what is written has one of the two
    writer: Writer = found.create(target, tensors, token)
    return writer


def check_target(
    path: str | os.PathLike[str], tensors: Mapping[str, Tensor], form: Format | None = None, *, is_real: bool = False
) -> tuple[Format, str]:
    """Return a new file's format, and the file to replace; raise FileError or OSError if it cannot hold the arrays."""
    path = os.fspath(path)
    if is_remote(path):
        raise FileError("a remote file", "a file of this machine")
    found = form or format_of(path)
    if not found.check:
        raise FileError(f"a {found.suffixes[0]} file to write", "one to read")
    found.check(tensors)
    return found, resolved(path, mark=found.mark, is_real=is_real)
