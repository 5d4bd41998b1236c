"""How long a new process waits: for imports, and for the first result of each operator.

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
    """With a warm cache: asv's warm-up runs the code once before it takes samples, and compiles what is missing.

    A sample is what a user waits for: NumPy's import and dmlcpu's, and a plain call with all that it loads.
    """

    params = (list(OPERATORS),)
    param_names = ("operator",)
    warmup_time = 0.1
    repeat = (5, 10, 20.0)
    timeout = 300

    def timeraw_first_result(self, operator):
        row = OPERATORS[operator]
        arguments = pickle.dumps(next(row.examples(row.typical)).arguments)
        # The examples' module imports descs, which a plain call does not need; pickle has come with NumPy. In hex, as
        # asv puts the code between quotes, where a backslash would not remain one.
        return (
            "import numpy as np\n"
            "import dmlcpu\n"
            "import pickle\n"
            f"dmlcpu.{operator}(**pickle.loads(bytes.fromhex('{arguments.hex()}')))"
        )
