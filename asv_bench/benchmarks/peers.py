"""The contenders: dmlcpu and its peers. `cases` has the call of each for each case."""

import contextlib
import functools

import numpy as np

import dmlcpu

from .conditions import ready, team
from .packages import package
from .torch_peer import switched

ONE_THREAD = "dmlcpu 1 thread"
TEAMS = {"dmlcpu 16 threads": 16, "dmlcpu 64 threads": 64}  # more than processors, usually
BOUND, COMPILED = "dmlcpu bound", "dmlcpu compiled"
OVERRIDDEN = "torch on dmlcpu"
WITH_THREADS = ("dmlcpu", "onnxruntime", "torch")  # a crowd
METHODS = {
    "dmlcpu": "dmlcpu",
    ONE_THREAD: "dmlcpu",
    **dict.fromkeys(TEAMS, "dmlcpu"),
    "dmlcpu out": "dmlcpu_out",
    BOUND: "dmlcpu_bound",
    COMPILED: "dmlcpu_compiled",
    "numpy": "numpy",
    "onnxruntime": "onnxruntime",
    "torch": "torch",
    OVERRIDDEN: "torch_on_dmlcpu",
}
CONTENDERS = list(METHODS)
IMPLEMENTATIONS = ["dmlcpu", "numpy", "onnxruntime", "torch"]  # of the benchmarks of tables
_FURTHER = {"tiny": [BOUND, COMPILED], "torch": [OVERRIDDEN], "threads": [ONE_THREAD]}


def contenders_of(table, regime="steady"):
    """Return the contenders of a table of compare.py in a regime."""
    if regime == "oversubscribed":
        return ["dmlcpu", *TEAMS]
    return ["dmlcpu", "dmlcpu out", *_FURTHER.get(table, ()), *IMPLEMENTATIONS[1:]]


@functools.lru_cache(maxsize=8)  # asv sets up anew before each sample, with the same data
def build(case, implementation):
    """Return the call of a case, after a first call, which may compile.

    Raises NotImplementedError if the contender cannot do the case, or is not installed.
    """
    if reason := case.refusal(METHODS[implementation]):
        raise NotImplementedError(reason)
    call = getattr(case, METHODS[implementation])()
    with settings_of(implementation):
        call()
    return call


def arrays(result):
    """Return a contender's result as a tuple of arrays."""
    results = result if isinstance(result, tuple | list) else (result,)
    return tuple(_array(each) for each in results)


def _array(result):
    if type(result).__module__ != "torch":
        return np.asarray(result)
    if str(result.dtype) == "torch.bfloat16":
        return result.view(package("torch").uint16).numpy().view("bfloat16")
    return result.numpy()


def fault(case, implementation, truth):
    """Return what is wrong with a contender's first result, or None.

    Peers promise neither the order of ties nor the last bit: the first of their results is compared with dmlcpu's,
    within the case's tolerance, and relative to its size where they sum in another order.
    """
    call = getattr(case, METHODS[implementation])()
    with settings_of(implementation):
        found = arrays(call())[0]
    if found.shape != truth.shape:
        return f"the shape is {found.shape} instead of {truth.shape}"
    close = np.isclose(
        found.astype(np.float64), truth.astype(np.float64), rtol=1e-4, atol=case.tolerance, equal_nan=True
    )
    return None if close.all() else f"{np.count_nonzero(~close)} of {close.size} elements differ"


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
    """Limit dmlcpu to one thread, let it have many, or let PyTorch run on it, as the implementation says."""
    before = dmlcpu.get_num_threads()
    if implementation == ONE_THREAD:
        dmlcpu.set_num_threads(1)
    many = team(TEAMS[implementation]) if implementation in TEAMS else contextlib.nullcontext()
    try:
        with many, switched() if implementation == OVERRIDDEN else contextlib.nullcontext():
            yield
    finally:
        dmlcpu.set_num_threads(before)


def cells(cases, implementations=IMPLEMENTATIONS, everywhere=False):
    """Return the names of the pairs of a contender and a case that it can do: "numpy: 1000x10000 k 10 float32".

    everywhere: also of contenders that are not installed here.

    asv starts a process for each value of a parameter, also for one that then cannot run. So the pairs that can are
    found when a module of benchmarks is imported, and are one parameter.
    """
    return [
        f"{implementation}: {name}"
        for name, case in cases.items()
        for implementation in implementations
        if (case.limitation if everywhere else case.refusal)(METHODS[implementation]) is None
    ]


def parts(cell):
    """Return the contender, and the name of the case."""
    implementation, _, case = cell.partition(": ")
    return implementation, case


class Comparison:
    """Base of the benchmarks of one call. Subclasses add `params`, `cases` and a method that asv measures."""

    param_names = ("cell",)
    # asv runs `setup` before each sample, and `setup` rests and makes an untimed call: a sample is the one call that
    # follows, and asv needs no warm-up of its own.
    number = 1
    warmup_time = 0
    repeat = (3, 10, 5.0)
    version = "1"

    def setup(self, cell):
        implementation, case = parts(cell)
        self.call = ready(build(self.cases[case], implementation))
