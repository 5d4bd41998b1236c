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
    """Open an array in a file. Its header is checked, and that the file is as long as that says.

    `name` says which array, and is needed if the file has several. `dtype` names a type as wide as the stored one, as
    which the elements are seen: .npy files have no name for bfloat16. Raises FileError for a broken file, Python
    objects, structured elements or an unknown array; OSError; ImportError if the format needs another package.
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
    """Begin a file of one or several arrays under a temporary name in the folder of its target.

    The target's folder is made; if the target is a symbolic link, the file that it leads to is replaced. `token`: other
    hexadecimal digits for each attempt, for the temporary name. `place`: where the target must be, with no link that
    leads elsewhere. `form`: the format; by default that of the suffix.

    Raises FileError if the format cannot hold these arrays or another kind of thing is in the target's place; OSError;
    ImportError if the format needs another package.
    """
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
    """Return a new file's format, and the file to replace; raise what `create` does before it writes."""
    path = os.fspath(path)
    if is_remote(path):
        raise FileError("a remote file", "a file of this machine")
    found = form or format_of(path)
    if not found.check:
        raise FileError(f"a {found.suffixes[0]} file to write", "one to read")
    found.check(tensors)
    return found, resolved(path, mark=found.mark, is_real=is_real)
