"""Makes the operators' threads a pool that threadpoolctl, where it is installed, lists and limits."""

import importlib
import os

_LENIENCE = "KMP_DUPLICATE_LIB_OK"


def join_threadpoolctl() -> None:
    """Register the operators' threads; do nothing without threadpoolctl, or with one from before 3.2."""
    # The import takes 2 to 3 ms. After another package's import, the first limits would already be in force.
    lenient = _LENIENCE in os.environ
    try:
        from threadpoolctl import LibController, register
    except ImportError:
        return
    finally:
        if not lenient:  # its import sets this, which allows Intel's OpenMP to be loaded twice
            os.environ.pop(_LENIENCE, None)

    class OperatorThreads(LibController):  # type: ignore[misc]
        """The threads of the operators, under the name of a library that is always loaded with them.

        threadpoolctl finds pools by shared libraries, and a library has one controller. The libraries in which Numba
        starts threads are left to a controller of Numba's own.
        """

        user_api = "dmlcpu"
        internal_api = "dmlcpu"
        filename_prefixes = ("libllvmlite", "llvmlite")  # the second on Windows
        check_symbols = ("LLVMPY_GetVersionInfo",)

        def get_num_threads(self) -> int:
            """Return how many threads an operator may use at most."""
            from dmlcpu.runtime.threads import get_num_threads

            return get_num_threads()

        def set_num_threads(self, num_threads: int) -> None:
            """Let operators use at most `num_threads` threads, in the whole process."""
            from dmlcpu.runtime.threads import set_num_threads

            set_num_threads(num_threads)

        def get_version(self) -> str:
            """Return the version of this package, not of the library."""
            # An import statement would make the whole package one cycle for mypy.
            return str(importlib.import_module("dmlcpu").__version__)

    register(OperatorThreads)
