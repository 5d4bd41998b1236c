"""The names that results have for this machine."""

import os
import platform
import re
from pathlib import Path


def cpu():
    """Return the processor's name, with the family and model numbers because virtual machines often hide the model."""
    try:
        text = Path("/proc/cpuinfo").read_text("utf-8")
    except OSError:
        return platform.processor() or platform.machine()
    found = dict(re.findall(r"^(model name|cpu family|model)\s*: (.*)$", text, re.MULTILINE))
    if "model name" not in found:
        return platform.machine()
    return f"{found['model name']} (family {found['cpu family']}, model {found['model']})"


def cores():
    return os.cpu_count() or 1


def name():
    """Return the name of the folder of this machine's results."""
    return "-".join(re.findall(r"[a-z0-9]+", f"{cpu()} {cores()} cores".lower()))


def memory():
    """Return the memory in GiB, or None if the system does not report it."""
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30)
    except (AttributeError, ValueError):
        return None
