"""The time of a new process until imports are done, and until the first result of each operator.

asv runs the code that these methods return in a fresh interpreter for each sample, and times it there.
"""

import pickle

from dmlcpu.operators import OPERATORS


class Import:
    params = (["dmlcpu", "numpy"],)
    param_names = ("package",)
    repeat = (5, 20, 10.0)

    def timeraw_import(self, package):
        return f"import {package}"


class FirstResult:
    """With a warm cache: asv's warm-up runs the code once before it takes samples, and compiles missing kernels.

    A sample is a user's whole wait: the imports of NumPy and dmlcpu, and a plain call with all modules that it loads.
    """

    params = (list(OPERATORS),)
    param_names = ("operator",)
    warmup_time = 0.1
    repeat = (5, 10, 20.0)
    timeout = 300

    def timeraw_first_result(self, operator):
        row = OPERATORS[operator]
        arguments = pickle.dumps(next(row.examples(row.typical)).arguments)
        # Arguments are pickled, because the examples' module imports descs, which a plain call does not need; NumPy
        # imports pickle anyway. They are in hex, because asv puts the code between quotes and would unescape it.
        return (
            "import numpy as np\n"
            "import dmlcpu\n"
            "import pickle\n"
            f"dmlcpu.{operator}(**pickle.loads(bytes.fromhex('{arguments.hex()}')))"
        )
