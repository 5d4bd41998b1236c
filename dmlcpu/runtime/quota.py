"""The CPU time and memory that control groups grant the process: a container may have the time of 2 of 64 cores."""

import os
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

_UNKNOWN_MEMORY = 4 << 30

_OWN = re.compile(r"\d+:([^:]*):(/.*)")  # controllers and path; version 2 names no controllers
_MOUNT = re.compile(r"\S+ \S+ \S+ (\S+) /(\S+) .* - (cgroup2?) \S+ (\S+)")  # root, mount point, type, options


def cpu_quota(root: Path = Path("/")) -> float | None:
    """Return how many cores' time the process may use, or None if no file has a limit."""
    found = [quota for group in _groups(root, "cpu") if (quota := _quota(group)) is not None]
    return min(found, default=None)


def memory_limit(root: Path = Path("/"), physical: int | None = None) -> int:
    """Return how many bytes of memory the process may use: all of the machine's `physical` ones, or less."""
    found = [limit for group in _groups(root, "memory") if (limit := _memory(group)) is not None]
    return min([physical or _physical_memory(), *found])


def _physical_memory() -> int:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # Windows
        return _UNKNOWN_MEMORY


def _groups(root: Path, controller: str) -> Iterator[Path]:
    """Yield the folders of the process's own control groups for a controller and of their visible ancestors."""
    own = {name: path for names, path in _matches(_OWN, root / "proc/self/cgroup") for name in names.split(",")}
    for top, point, version, options in _matches(_MOUNT, root / "proc/self/mountinfo"):
        if version == "cgroup" and controller not in options.split(","):
            continue
        mount = group = root / point
        path = PurePosixPath(own.get("" if version == "cgroup2" else controller, "/"))
        if path.is_relative_to(top):  # a container may see only its own part of the hierarchy, from `top` on
            group = mount / path.relative_to(top)
        if not os.path.isdir(group):  # a path of the host; the container's own group is mounted here
            group = mount
        yield from [group, *group.parents][: len(group.parts) - len(mount.parts) + 1]


def _quota(group: Path) -> float | None:
    """Return how many cores' time one control group grants; its ancestors may grant less."""
    text = _read(group / "cpu.max") or _read(group / "cpu.cfs_quota_us") + " " + _read(group / "cpu.cfs_period_us")
    try:
        time, period = map(int, text.split())  # not for "max", which is no limit
        return time / period if time > 0 and period > 0 else None  # version 1 writes -1 for no limit
    except (ValueError, OverflowError):
        return None


def _memory(group: Path) -> int | None:
    """Return how many bytes one control group grants."""
    text = _read(group / "memory.max") or _read(group / "memory.limit_in_bytes")
    return int(text) if text.strip().isdecimal() else None  # "max" is no limit


def _matches(pattern: re.Pattern[str], file: Path) -> Iterator[tuple[str, ...]]:
    """Yield the groups of the pattern in each line that it matches."""
    for line in _read(file).split("\n"):
        if match := pattern.fullmatch(line):
            yield match.groups()


def _read(file: Path) -> str:
    try:
        return file.read_text("utf-8", "surrogateescape")
    except (OSError, ValueError):  # only Linux has these files; ValueError: no file can have such a name
        return ""
