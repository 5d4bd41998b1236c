"""Settings of this installation: versions, instruction sets, threads, kernels, the cache."""

import os
import platform
import sys
from typing import Any

from dmlcpu import __version__

_NONE = {"advice": "none: nothing is off", "cpu_quota": "none", "open_to_others": "no"}


def show_config() -> None:
    """Print versions, instruction sets, threads, the cache folder and the kernels that this machine can run.

    If ``NUMBA_DISABLE_JIT`` switches compilation off, no kernels are used, and the function prints that. It compiles
    nothing and starts no helper thread.

    Examples
    --------
    >>> import dmlcpu
    >>> dmlcpu.show_config()  # doctest: +ELLIPSIS
    versions
      dmlcpu ...
    """
    print(as_text(config()))


def config() -> dict[str, Any]:
    """Return what `show_config` prints as a dictionary of JSON types.

    Returns
    -------
    dict
        "versions", "compilation", "isa", "threads", "results", "cache" and "operators" are dictionaries, "kernels" is a
        list of them.
    """
    import llvmlite
    import numba
    import numpy

    from dmlcpu.kernels import registry
    from dmlcpu.operators.table import OPERATORS
    from dmlcpu.runtime import isa, quota, results, threads
    from dmlcpu.runtime.cache import exposed
    from dmlcpu.runtime.compilation import can_compile

    return {
        "versions": {
            "dmlcpu": __version__,
            "python": platform.python_version(),
            **{each.__name__: each.__version__ for each in (numpy, numba, llvmlite)},
            "platform": f"{sys.platform} {platform.machine()}",
        },
        "compilation": {
            "state": "on" if can_compile() else "switched off: results come from dmlcpu.reference",
            "NUMBA_DISABLE_JIT": os.environ.get("NUMBA_DISABLE_JIT"),
        },
        "isa": {
            "detected": isa.highest(isa.detected()).name.lower(),
            "allowed": isa.highest(isa.allowed()).name.lower(),
            "DMLCPU_ISA": os.environ.get("DMLCPU_ISA"),
        },
        "threads": {
            "used": threads.get_num_threads(),
            "DMLCPU_NUM_THREADS": os.environ.get("DMLCPU_NUM_THREADS"),
            "NUMBA_NUM_THREADS": numba.config.NUMBA_NUM_THREADS,
            "cpu_quota": quota.cpu_quota(),
            **threads.layer().describe(),
        },
        "results": {
            "kept": f"of {results.LEAST_BYTES >> 20} to {results.MOST_BYTES >> 20} MiB" if results.keeps() else "none",
            "DMLCPU_KEEP_RESULTS": os.environ.get("DMLCPU_KEEP_RESULTS"),
        },
        "cache": {
            "folder": (folder := cache_folder()),
            "open_to_others": exposed(folder) if os.path.isabs(folder) else None,
            "NUMBA_CACHE_DIR": os.environ.get("NUMBA_CACHE_DIR"),
        },
        "operators": {each.name: ", ".join(kind.name for kind in each.descs) for each in OPERATORS.values()},
        "kernels": [
            {"operator": entry.operator, "stage": entry.stage, "name": entry.name, "isa": entry.isa.name.lower()}
            for entry in registry.available()
        ],
    }


def as_text(settings: dict[str, Any]) -> str:
    """Return the text of a `config()`."""
    lines = []
    for title, content in settings.items():
        lines.append(title)
        if isinstance(content, dict):
            rows = [(name, _NONE.get(name, "not set") if value is None else value) for name, value in content.items()]
        else:
            rows = [(f"{each['operator']} {each['stage']}", f"{each['name']} ({each['isa']})") for each in content]
        width = max(len(name) for name, _ in rows)
        lines += [f"  {name:{width}}  {value}" for name, value in rows]
    return "\n".join(lines)


def cache_folder() -> str:
    """Return the folder under which compiled kernels are kept."""
    from dmlcpu.kernels import registry
    from dmlcpu.runtime.compilation import can_compile

    if not can_compile():
        return "none: compilation is switched off"
    if not os.path.exists(__file__):  # in a zipapp
        return "none: Numba names cache files by source files, and these are in an archive"
    folders = {entry.kernel.share.stats.cache_path for entry in registry.available()} - {None}
    return (
        os.path.commonpath(folders)
        if folders
        else "none: no folder can be written to, so every process compiles its kernels"
    )
