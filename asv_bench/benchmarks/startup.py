"""The time of a new process until imports are done, and until the first result of each operator.

asv runs the code that these methods return in a fresh interpreter for each sample, and times it there.
"""

import pickle

from dmlcpu.operators import OPERATORS


class Import:
    params = (["dmlcpu", "numpy"],)
    param_names = ("package",)
    version = "1"
    repeat = (5, 20, 10.0)

    def timeraw_import(self, package):
        return f"import {package}"


_FIRST_RESULT = """\
import numpy as np
import dmlcpu
import pickle
dmlcpu.{operator}(**pickle.loads(bytes.fromhex('{arguments}')))"""


def first_result(operator):
    """Return the code of an operator's first example.

    Arguments are pickled, because the examples' module imports descs, which a plain call does not need; NumPy imports
    pickle anyway. They are in hex, because asv puts the code between quotes and would unescape it.
    """
    row = OPERATORS[operator]
    arguments = pickle.dumps(next(row.examples(row.typical)).arguments)
    return _FIRST_RESULT.format(operator=operator, arguments=arguments.hex())


class FirstResult:
    """With a warm cache: asv's warm-up runs the code once before it takes samples, and compiles missing kernels.

    A sample is a user's whole wait: the imports of NumPy and dmlcpu, and a plain call with all modules that it loads.
    """

    params = (list(OPERATORS),)
    param_names = ("operator",)
    version = "1"
    warmup_time = 0.1
    repeat = (5, 10, 20.0)
    timeout = 300

    def timeraw_first_result(self, operator):
        return first_result(operator)


class NothingCached(FirstResult):
    """With an empty cache: the kernels are compiled."""

    warmup_time = 0
    repeat = 1

    def timeraw_first_result(self, operator):
        empty = "import os, tempfile\nos.environ['NUMBA_CACHE_DIR'] = tempfile.mkdtemp()\n"
        return empty + first_result(operator)
