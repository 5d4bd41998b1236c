"""`dmlcpu.bind`: calls from several threads, within one another, and in forked children."""

import os
import textwrap
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import processes
import pytest
from operators.bound_calls import CALLS, each_kept_operator, each_operator, function
from samples import as_tuple, assert_same_bits

import dmlcpu
from dmlcpu.errors import IndexOutOfRangeError
from dmlcpu.runtime.threads import limit_threads, use_budget


@each_operator
def test_settings_of_threads_are_those_of_the_call(operator):
    args, kwargs = CALLS[operator]()
    expected = as_tuple(function(operator)(*args, **kwargs))
    with use_budget(1):
        run = dmlcpu.bind(function(operator), *args, **kwargs)
    for threads in (2, 1, 5):
        with use_budget(threads, grain=1):
            assert_same_bits(as_tuple(run()), expected)
            with limit_threads(1):
                assert_same_bits(as_tuple(run()), expected)
    with use_budget(2, kernel="no_such_kernel"), pytest.raises(LookupError):
        run()
    assert_same_bits(as_tuple(run()), expected)


@each_operator
def test_several_threads_may_call(operator):
    args, kwargs = CALLS[operator]()
    expected = as_tuple(function(operator)(*args, **kwargs))
    run = dmlcpu.bind(function(operator), *args, **kwargs)
    with ThreadPoolExecutor(8) as pool:
        for found in [pool.submit(lambda: [run() for _ in range(300)][-1]) for _ in range(8)]:
            found.result()
    assert_same_bits(as_tuple(run.outputs), expected)


@each_kept_operator
def test_a_call_within_a_call_has_workspace_of_its_own(operator):
    args, kwargs = CALLS[operator]()
    expected = as_tuple(function(operator)(*args, **kwargs))
    run = dmlcpu.bind(function(operator), *args, **kwargs)
    with run._chosen[1][0]:  # as a signal handler finds it in the middle of a call
        for output in as_tuple(run.outputs):
            output[...] = 77
        assert_same_bits(as_tuple(run()), expected)
    assert not run._chosen[1][0].locked()


def test_a_refused_call_lets_the_next_one_run():
    indices = np.array([[9]])
    run = dmlcpu.bind(dmlcpu.scatter_nd, np.zeros(3), indices, np.ones(1))
    with pytest.raises(IndexOutOfRangeError):
        run()
    assert not run._chosen[1][0].locked()
    indices[...] = 1
    assert run().tolist() == [0, 1, 0]


class Interrupted:
    """A lock that a caller has taken, but is interrupted before it knows."""

    def acquire(self, _blocking):
        raise KeyboardInterrupt


@each_kept_operator
def test_after_an_interrupt_calls_have_other_workspace(operator):
    args, kwargs = CALLS[operator]()
    expected = as_tuple(function(operator)(*args, **kwargs))
    run = dmlcpu.bind(function(operator), *args, **kwargs)
    budget, (_, again) = run._chosen
    run._chosen = budget, (Interrupted(), again)
    with pytest.raises(KeyboardInterrupt):
        run()
    assert_same_bits(as_tuple(run()), expected)
    _, (free, other) = run._chosen
    assert other is not again
    assert not free.locked()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system does not fork")
def test_a_forked_child_may_go_on():
    code = """
    import os
    import numpy as np
    import dmlcpu

    x = np.array([1.0, 3.0, 2.0])
    run = dmlcpu.bind(dmlcpu.top_k, x, 1)
    with run._chosen[1][0]:  # as if another thread called meanwhile
        child = os.fork()
    x[0] = 9 if child == 0 else 0
    found = run().indices[0]
    if child == 0:
        os._exit(9 if run._chosen[1][0].locked() else int(found))
    print(found, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """
    assert processes.run(textwrap.dedent(code)).split() == ["1", "0"]
