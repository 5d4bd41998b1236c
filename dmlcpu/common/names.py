"""Errors about attributes that a module does not have."""

from collections.abc import Iterable


def unknown(module: str, name: str, public: Iterable[str], meant: str | None = None) -> AttributeError:
    """Return the error about a name, which suggests the one that is meant, or the public names that are like it.

    Python's own suggestions are printed below a traceback only, and only where the name was assigned before.
    """
    message = f"module {module!r} has no attribute {name!r}"
    if name.startswith("_"):  # tools ask for such names, which no one has misspelled
        return AttributeError(message)
    try:
        from difflib import get_close_matches  # only here: few programs need it
    except ImportError:  # the interpreter is shutting down
        return AttributeError(message)
    like = [repr(each) for each in ([meant] if meant else get_close_matches(name, public))]
    return AttributeError(f"{message}; did you mean {' or '.join(like)}?" if like else message)
