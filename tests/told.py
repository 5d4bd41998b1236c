"""What the command line prints on standard error, without what it prints only if the cache does not have kernels."""

from dmlcpu.jobs.progress import COMPILING


def without_compiling(text: str) -> str:
    """Return the text as it is if nothing is compiled."""
    return text.replace(f"dmlcpu: {COMPILING}\n", "")
