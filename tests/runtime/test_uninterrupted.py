"""The main thread waits while another one works: a signal handler interrupts the wait alone."""

import contextlib
import importlib
import os
import signal
import sys
import threading
import time
import traceback
import weakref

import numpy as np
import pytest
from numba.core.compiler_lock import global_compiler_lock
from processes import run

import dmlcpu
from dmlcpu.runtime import uninterrupted as module
from dmlcpu.runtime.kernel import kernel
from dmlcpu.runtime.uninterrupted import uninterrupted


@pytest.fixture
def handle():
    """Set what a signal handler does; return what sends the main thread that signal."""
    if not hasattr(signal, "pthread_kill"):
        pytest.skip("no signals between threads on this system")
    before = signal.getsignal(signal.SIGUSR1)

    def set_handler(function):
        signal.signal(signal.SIGUSR1, lambda *_: function())
        return lambda: signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)

    yield set_handler
    signal.signal(signal.SIGUSR1, before)


@pytest.fixture
def fresh(monkeypatch):
    """Return a kernel that is compiled anew; `begin` is called when that begins."""

    def make(begin):
        @kernel
        def fill(part, parts, out):
            out[part] = 7

        compile_core = type(fill.share._compiler)._compile_core

        def begin_first(self, *args):
            begin()
            return compile_core(self, *args)

        monkeypatch.setattr(type(fill.share._compiler), "_compile_core", begin_first)
        monkeypatch.setattr(fill.share._cache, "load_overload", lambda *_: None)
        return fill

    return make


def raise_interrupt():
    raise KeyboardInterrupt


def worker(*_):
    """Return whether this is another thread than the main one."""
    return threading.get_ident() != threading.main_thread().ident


def test_the_main_thread_waits_for_another():
    assert uninterrupted(worker)
    assert uninterrupted(lambda a, b: a - b, 5, 3) == 2


def test_exceptions_come_with_their_traceback():
    def fail():
        raise OSError("no such thing")

    with pytest.raises(OSError, match="no such thing") as caught:
        uninterrupted(fail)
    assert [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)][-1] == "fail"


def test_exceptions_leave_nothing_behind():
    """Not even until the garbage collector comes: arguments may be large arrays."""

    class Argument:
        pass

    def fail(argument):
        raise OSError

    argument = Argument()
    reference = weakref.ref(argument)
    with contextlib.suppress(OSError):
        uninterrupted(fail, argument)
    del argument
    assert reference() is None


def test_settings_of_the_calling_thread_hold():
    with np.errstate(divide="raise"), pytest.raises(FloatingPointError):
        uninterrupted(lambda: np.ones(1) / np.zeros(1))


def test_a_handler_that_raises_ends_the_wait_alone(handle):
    interrupt, go_on, done = handle(raise_interrupt), threading.Event(), threading.Event()

    def work():
        interrupt()
        go_on.wait(20)
        done.set()

    with pytest.raises(KeyboardInterrupt):
        uninterrupted(work)
    assert not done.is_set()
    go_on.set()
    assert done.wait(20)


def test_a_signal_just_before_the_wait_is_handled_during_it(handle):
    """Without looks in between, 2 of 100 were handled after it."""
    interrupt = handle(raise_interrupt)
    for _ in range(200):
        go_on = threading.Event()

        def work(go_on=go_on):
            interrupt()
            go_on.wait(20)

        began = time.perf_counter()
        with pytest.raises(KeyboardInterrupt):
            uninterrupted(work)
        go_on.set()
        assert time.perf_counter() - began < 15


def test_a_handler_may_work_meanwhile(handle):
    """Its work waits for the end of the work that it finds."""
    done = []
    interrupt = handle(lambda: uninterrupted(done.append, "second"))

    def work():
        interrupt()
        time.sleep(0.05)
        done.append("first")

    uninterrupted(work)
    assert done == ["first", "second"]


def test_a_handler_calls_the_kernel_that_is_being_compiled(handle, fresh):
    """Without a thread of its own, Numba would be entered twice."""
    outer, inner = np.zeros(1, np.int64), np.zeros(1, np.int64)
    fill = fresh(handle(lambda: fill(1, inner)))
    fill(1, outer)
    assert [outer.item(), inner.item()] == [7, 7]


def test_an_interrupted_compilation_is_done_for_the_next_call(handle, fresh):
    interrupt, go_on, begun = handle(raise_interrupt), threading.Event(), []

    def begin():
        begun.append(1)
        interrupt()
        go_on.wait(20)

    fill, out = fresh(begin), np.zeros(1, np.int64)
    with pytest.raises(KeyboardInterrupt):
        fill(1, out)
    go_on.set()
    fill(1, out)
    assert out.item() == 7
    assert len(begun) == 1


def test_another_thread_works_itself():
    found = []
    thread = threading.Thread(target=lambda: found.append(uninterrupted(threading.current_thread)))
    thread.start()
    thread.join()
    assert found == [thread]


def test_who_has_numbas_lock_works_itself():
    """A compiled caller that calls an operator, for instance: another thread would wait for that lock."""
    with global_compiler_lock:
        assert not uninterrupted(worker)


def test_a_module_that_is_imported_works_itself(tmp_path, monkeypatch):
    """Another thread might need the module, and would wait for the end of its import."""
    (tmp_path / "calls_at_import.py").write_text(
        "import threading\nfrom dmlcpu.runtime.uninterrupted import uninterrupted\n"
        "def work():\n    import calls_at_import\n    return threading.current_thread()\n"
        "WORKER = uninterrupted(work)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert importlib.import_module("calls_at_import").WORKER is threading.main_thread()
    del sys.modules["calls_at_import"]


def test_where_no_thread_can_be_started_the_main_thread_works(monkeypatch):
    def fail(*_):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(module, "start_new_thread", fail)
    assert not uninterrupted(worker)


def test_where_threads_have_a_small_stack_the_main_thread_works():
    """LLVM would need more, and end the process."""
    before = threading.stack_size(1 << 16)
    try:
        assert not uninterrupted(worker)
    finally:
        threading.stack_size(before)
    assert uninterrupted(worker)


def test_the_wait_needs_no_lock_that_gevent_may_have_replaced(monkeypatch):
    """Its locks are for greenlets of one thread: to wait for another thread would be an error."""

    def fail(*_):
        raise AssertionError("would block forever")

    for name in ("Lock", "RLock", "_allocate_lock"):
        monkeypatch.setattr(threading, name, fail)
    assert uninterrupted(worker)


def test_at_the_end_of_the_process_work_is_awaited_and_no_other_begun(monkeypatch, handle):
    interrupt, go_on, done = handle(raise_interrupt), threading.Event(), []

    def work():
        interrupt()
        go_on.wait(20)
        done.append("first")

    monkeypatch.setattr(module, "_closed", False)
    with pytest.raises(KeyboardInterrupt):
        uninterrupted(work)
    interrupted = threading.Timer(0.05, interrupt)
    interrupted.start()
    with pytest.raises(KeyboardInterrupt):
        uninterrupted(done.append, "second")  # which waits for the first
    threading.Timer(0.05, go_on.set).start()
    monkeypatch.setattr(module.event, "register", lambda *_: None)
    module._close()
    assert done == ["first"]
    assert not uninterrupted(worker)


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="no signals between threads on this system")
def test_at_the_end_of_the_process_a_compilation_ends_before_its_next_pass():
    told = run(
        """
        import signal, threading
        import numpy as np
        from numba.core import event
        from dmlcpu.runtime.kernel import kernel

        closing = threading.Event()

        class Passes(event.Listener):
            count = 0
            def on_start(self, _event):
                self.count += 1
                print(self.count)
                if self.count == 5:
                    signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
                    closing.wait(20)
            def on_end(self, _event):
                pass

        event.register("numba:run_pass", Passes())
        signal.signal(signal.SIGINT, signal.default_int_handler)

        @kernel
        def fill(part, parts, out):
            out[part] = 7

        try:
            fill(1, np.zeros(1, np.int64))
        except KeyboardInterrupt:
            timer = threading.Timer(0.3, closing.set)
            timer.daemon = True  # Python would wait for another one before it ends
            timer.start()
        else:
            raise AssertionError("not interrupted")
        """
    )
    assert told.split() in (list("12345"), list("123456"))  # of more than 20


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_fork_waits_for_what_is_compiled():
    """The child would wait for ever: it has neither the thread that compiles nor what that compiles."""
    run(
        """
        import os, signal, threading, warnings
        from numba.core.compiler_lock import global_compiler_lock
        from dmlcpu.runtime.uninterrupted import uninterrupted

        warnings.simplefilter("ignore", DeprecationWarning)  # Python warns that a process with threads forks
        go_on, done = threading.Event(), []

        def work():
            signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)
            go_on.wait(20)
            done.append(1)

        def interrupt(*_):
            raise KeyboardInterrupt

        signal.signal(signal.SIGUSR1, interrupt)
        try:
            uninterrupted(work)
        except KeyboardInterrupt:
            pass
        threading.Timer(0.1, go_on.set).start()
        child = os.fork()
        if child == 0:
            signal.alarm(20)
            os._exit(uninterrupted(lambda: 3) if done else 4)
        assert os.waitpid(child, 0)[1] == 3 << 8
        assert not global_compiler_lock.is_locked()
        assert uninterrupted(lambda: 5) == 5
        """
    )


def test_a_first_call_starts_no_thread_that_stays():
    before = threading.active_count()
    dmlcpu.top_k(np.arange(6, dtype=np.float16), 2)
    uninterrupted(worker)
    assert threading.active_count() == before


def test_a_thread_that_ends_late_keeps_no_arguments(monkeypatch):
    allocate = module.allocate_lock

    class Lock:
        def __init__(self):
            self.lock = allocate()
            self.acquire = self.lock.acquire

        def release(self):
            self.lock.release()
            late.wait(10)

    late = threading.Event()
    monkeypatch.setattr(module, "allocate_lock", Lock)
    x = np.ones(3)
    kept = weakref.ref(x)
    assert uninterrupted(np.sum, x) == 3
    del x
    assert kept() is None
    late.set()
