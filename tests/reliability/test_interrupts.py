"""Signal handlers that raise, as that of Ctrl-C does, or that call operators, at any moment of a call."""

import itertools
import os
import signal
import sys

import numpy as np
import pytest
from processes import run

import dmlcpu
from dmlcpu import reference
from dmlcpu.batch import run_jobs
from dmlcpu.jobs.progress import Progress
from dmlcpu.runtime import threads
from dmlcpu.runtime.pool import AVAILABLE

# A process that has loaded the operators, and compiled nothing, forks children that each make a first call. A signal
# comes at a moment that is drawn from the time that such a call takes, which one call without a signal tells.
FIRST_CALLS = """
import faulthandler
import os
import random
import signal
import sys
import tempfile
import time

import numba
import numpy as np

import dmlcpu
from dmlcpu import reference
from dmlcpu.runtime.threads import use_budget

x = np.arange(400, dtype=np.float32).reshape(40, 10)
a, b = np.ones((3, 4), np.uint8), np.ones((4, 5), np.int8)
ARGUMENTS = {
    "top_k": (x, 2),
    "scatter_nd": (x, np.array([[1]]), np.ones((1, 10), np.float32)),
    "matmul_integer": (a, None, b, None),
    "argmax": (x,),
    "gather_elements": (x, np.zeros((40, 1), np.int64)),
}
# What is compiled is what takes the least time to compile.
FIRST, OTHERS = ("gather_elements", ["argmax"]) if COMPILES else ("top_k", ["scatter_nd", "matmul_integer"])
OPTIONS = {"argmax": {"axis": 1}, "gather_elements": {"axis": 1}}
FUNCTIONS = {name: getattr(dmlcpu, name) for name in ARGUMENTS}
RIGHT = {name: getattr(reference, name)(*given, **OPTIONS.get(name, {})) for name, given in ARGUMENTS.items()}

def check(*names):
    for name in names:
        found = FUNCTIONS[name](*ARGUMENTS[name], **OPTIONS.get(name, {}))
        for got, right in zip(found, RIGHT[name], strict=True):
            assert np.array_equal(got, right), name

def first_call(what, delay):
    handled = []
    def handler(*_):
        if what.startswith("ctrl-c"):
            raise KeyboardInterrupt
        check(*[FIRST] if what == "same" else OTHERS)
        handled.append(1)

    signal.signal(signal.SIGALRM, handler)
    start = time.monotonic()
    try:
        signal.setitimer(signal.ITIMER_REAL, delay)
        try:
            with use_budget(2, grain=1):
                check(FIRST)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            took = time.monotonic() - start
    except KeyboardInterrupt:
        handled.append(1)
        if what == "ctrl-c at the end":
            return took  # the process ends while another thread may still compile
    others = [] if COMPILES and what == "same" else OTHERS  # compiling them would only take time
    check(FIRST, *others)
    print(what, "hit" if handled else "came too late", flush=True)
    return took

def child(what, delay):
    reading, writing = os.pipe()
    number = os.fork()
    if number == 0:
        faulthandler.enable()
        faulthandler.dump_traceback_later(250, exit=True)
        if COMPILES:
            numba.config.CACHE_DIR = tempfile.mkdtemp(dir=COMPILES)
        os.write(writing, str(first_call(what, delay)).encode())
        sys.exit()
    status = os.waitpid(number, 0)[1]
    assert status == 0, (what, delay, status)
    took = float(os.read(reading, 100))
    os.close(reading)
    os.close(writing)
    return took

KINDS = "ctrl-c", "same", "other", "ctrl-c at the end"
if not COMPILES:
    child("same", 100)  # fills the cache
took = child("same", 100)
drawn = random.Random(SEED)
for number in range(TRIES):
    kind, share = KINDS[(number + SEED) % len(KINDS)], drawn.random()
    for _ in range(3):
        delay, took = share * took, child(kind, share * took)
        if delay <= took:  # else the signal came too late, as the call before was a slow one
            break
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.parametrize(
    ("tries", "compiles"),
    [
        pytest.param(8, False, id="loaded"),
        pytest.param(2, True, id="compiled", marks=pytest.mark.slow),
    ],
)
def test_a_signal_in_a_first_call_does_no_harm(tries, compiles, tmp_path, seeds, counted):
    told = []
    for seed in seeds(1):
        settings = f"TRIES, SEED, COMPILES = {tries}, {seed}, {str(tmp_path) if compiles else ''!r}\n"
        told += run(settings + FIRST_CALLS, OPENBLAS_NUM_THREADS="1").splitlines()
    hits = sum(line.endswith("hit") for line in told)
    assert hits
    counted(f"{hits} signals in {len(told)} first calls")


class Stop(BaseException):
    pass


def stopped_at(number, files, call):
    """Call, and raise Stop at an opcode of these files, by its number; return the exception, if there was one."""
    count = 0

    def look(_frame, event, _):
        nonlocal count
        if event == "opcode":
            count += 1
            if count == number:
                sys.settrace(None)
                raise Stop
        return look

    def trace(frame, _event, _):
        frame.f_trace, frame.f_trace_lines = look, False  # first: since 3.12 Python looks for it
        frame.f_trace_opcodes = frame.f_code.co_filename.endswith(files)
        return look

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    except Stop as stop:
        return stop
    finally:
        sys.settrace(before)


def stops(files, call):
    """Yield the exceptions of calls that are stopped at each opcode of these files, one after another."""
    for number in itertools.count(1):
        stop = stopped_at(number, files, call)
        if stop is None:
            assert number > 20  # else the files are not those that the call uses
            return
        yield stop


def test_a_stop_leaves_no_limit_in_force():
    x = np.arange(40, dtype=np.float32).reshape(4, 10)

    def call():
        with threads.limit_threads(1):
            dmlcpu.top_k(x, 2)

    with threads.use_budget(3, grain=1):
        call()
        for stop in stops(("threads.py", "contextlib.py"), call):
            assert threads.budget().threads == 3, stop.__traceback__  # also while the exception is handled


@pytest.mark.skipif(not AVAILABLE, reason="this system has only Numba's threads")
def test_a_stop_leaves_no_launch_under_way():
    x = np.random.default_rng(0).standard_normal((50, 100), np.float32)
    right, pool = reference.top_k(x, 20).indices, threads.layer()

    def first_launch():
        pool._known.clear()
        dmlcpu.top_k(x, 20)

    with threads.use_budget(2, grain=1):
        first_launch()
        for stop in stops(("pool.py", "claims.py"), first_launch):
            del stop
            assert dmlcpu.top_k(x, 20).indices.tolist() == right.tolist()
            assert pool._known  # the next launch has prepared
            assert not pool._boxes["owner"].any()


@pytest.mark.skipif(os.name == "nt", reason="Windows sends no such signal to its own process")
def test_ctrl_c_between_two_blocks_ends_a_job(tmp_path, monkeypatch):
    x, read = np.random.default_rng(0).random((4000, 500), np.float32), []
    np.save(tmp_path / "x.npy", x)
    job = {"op": "top_k", "inputs": {"x": "x.npy"}, "attrs": {"k": 2}, "output": {"indices": "found.npy"}}

    def interrupt_first(_, nbytes):
        read.append(nbytes)
        if len(read) == 1:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(Progress, "read", interrupt_first)
    ended = run_jobs([job], directory=tmp_path, workers=1, max_memory="1M")
    assert (ended.interrupted, ended.done) == (True, 0)
    assert sum(read) < x.nbytes / 2
    assert [path.name for path in tmp_path.iterdir()] == ["x.npy"]
    assert run_jobs([job], directory=tmp_path, workers=1, max_memory="1M").done == 1
    assert sum(read) > x.nbytes
