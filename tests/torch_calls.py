"""What tests of PyTorch's operators share."""

import contextlib

FLOATS = ["float16", "bfloat16", "float32", "float64"]
ORDERED = [*FLOATS, "int8", "int16", "int32", "int64", "uint8"]
HALVES = ("float16", "bfloat16")


def taken(ours, name):
    return ours.report()[name]["taken"]


@contextlib.contextmanager
def takes(ours, name, calls=1):
    """Hold that these kernels take calls of an operator."""
    before = taken(ours, name)
    yield
    assert taken(ours, name) == before + calls


def outcomes(ours, call):
    """Return what a call returns, or its error, with these kernels and without."""
    found = []
    for switch in (ours.enable, ours.disable):
        switch()
        try:
            found.append(call())
        except (RuntimeError, IndexError) as error:
            found.append((type(error), str(error)))
    return found


def passed_on(ours, name):
    return ours.report()[name]["passed on"]
