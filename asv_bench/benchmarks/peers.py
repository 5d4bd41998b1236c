"""The contenders: dmlcpu and its peers. `cases` has the call of each for each case."""

import contextlib
import functools

import dmlcpu

from .conditions import ready
from .torch_peer import switched

ONE_THREAD = "dmlcpu 1 thread"
BOUND, COMPILED = "dmlcpu bound", "dmlcpu compiled"
OVERRIDDEN = "torch on dmlcpu"
WITH_THREADS = ("dmlcpu", "onnxruntime", "torch")  # a crowd
METHODS = {
    "dmlcpu": "dmlcpu",
    ONE_THREAD: "dmlcpu",
    "dmlcpu out": "dmlcpu_out",
    BOUND: "dmlcpu_bound",
    COMPILED: "dmlcpu_compiled",
    "numpy": "numpy",
    "onnxruntime": "onnxruntime",
    "torch": "torch",
    OVERRIDDEN: "torch_on_dmlcpu",
}
CONTENDERS = list(METHODS)
IMPLEMENTATIONS = ["dmlcpu", "dmlcpu out", "numpy", "onnxruntime", "torch"]


@functools.lru_cache(maxsize=8)  # asv sets up anew before each sample, with the same data
def build(case, implementation):
    """Return the call of a case, after a first call, which may compile."""
    call = getattr(case, METHODS[implementation])()
    with settings_of(implementation):
        call()
    return call


def crowd_around(case, implementation):
    """Return the calls of the other libraries that have threads and can do the case."""
    calls = []
    for name in WITH_THREADS:
        if name != implementation.split()[0]:
            with contextlib.suppress(NotImplementedError):
                calls.append(build(case, name))
    if not calls:
        raise NotImplementedError("no other library with threads can do the case")
    return calls


@contextlib.contextmanager
def settings_of(implementation):
    """Limit dmlcpu to one thread, or let PyTorch run on it, as the implementation says, within the context."""
    before = dmlcpu.get_num_threads()
    if implementation == ONE_THREAD:
        dmlcpu.set_num_threads(1)
    try:
        with switched() if implementation == OVERRIDDEN else contextlib.nullcontext():
            yield
    finally:
        dmlcpu.set_num_threads(before)


class Comparison:
    """Base of the benchmarks of one call. Subclasses add `params`, `cases` and a method that asv measures."""

    param_names = ("implementation", "case")
    # asv runs `setup` before each sample, and `setup` rests and makes an untimed call: a sample is the one call that
    # follows, and asv needs no warm-up of its own.
    number = 1
    warmup_time = 0
    repeat = (3, 10, 5.0)

    def setup(self, implementation, case):
        self.call = ready(build(self.cases[case], implementation))
