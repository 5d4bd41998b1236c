"""DxDispatch models: JSON files of buffers, operators and commands.

The names load on first use: importing the package imports neither Numba nor NumPy.
"""

from typing import TYPE_CHECKING

from dmlcpu.common.names import lazy

if TYPE_CHECKING:
    from dmlcpu.models.faults import ModelError as ModelError
    from dmlcpu.models.model import Model as Model, load_model as load_model
    from dmlcpu.models.runner import RunError as RunError, Timing as Timing, run_model as run_model

else:  # with __getattr__, type checkers would accept any name
    __all__, __getattr__, __dir__ = lazy(
        "dmlcpu.models",
        {
            "dmlcpu.models.faults": ("ModelError",),
            "dmlcpu.models.model": ("Model", "load_model"),
            "dmlcpu.models.runner": ("RunError", "Timing", "run_model"),
        },
    )
