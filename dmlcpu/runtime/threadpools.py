"""Makes the operators' threads a pool that threadpoolctl, where it is installed, lists and limits."""

import importlib
import os

_LENIENCE = "KMP_DUPLICATE_LIB_OK"


def join_threadpoolctl() -> None:
    """Register the operators' threads; do nothing where there is no threadpoolctl, or one from before 3.2."""
    # It is imported here, in 2 to 3 ms: to wait until somebody else does would be too late for the first limits.
    lenient = _LENIENCE in os.environ
    try:
        from threadpoolctl import LibController, register
    except ImportError:
        return
    finally:
        if not lenient:  # its import allows Intel's OpenMP to be loaded twice, which is not asked for here
            os.environ.pop(_LENIENCE, None)

    class OperatorThreads(LibController):  # type: ignore[misc]
        """The threads of the operators, under the name of a library that is loaded whenever they are.

        threadpoolctl finds pools by shared libraries, each with one controller. The libraries in which Numba starts
        threads are left to a controller of Numba's own.
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
            """Let operators use at most so many threads, in the whole process."""
            from dmlcpu.runtime.threads import set_num_threads

            set_num_threads(num_threads)

        def get_version(self) -> str:
            """Return the version of this package, not of the library."""
            # With an import statement, mypy would see the whole package as one cycle.
            return str(importlib.import_module("dmlcpu").__version__)

    register(OperatorThreads)
