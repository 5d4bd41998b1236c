"""Run whole files: DxDispatch models.

The names load on first use: importing the package, or its `faults`, imports neither Numba nor NumPy.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dmlcpu.batch.faults import Fault as Fault, ModelError as ModelError
    from dmlcpu.batch.models.model import Model as Model, load_model as load_model
    from dmlcpu.batch.models.runner import RunError as RunError, Timing as Timing, run_model as run_model

_HOME_OF = {
    "Fault": "faults",
    "Model": "models.model",
    "ModelError": "faults",
    "RunError": "models.runner",
    "Timing": "models.runner",
    "load_model": "models.model",
    "run_model": "models.runner",
}

__all__ = sorted(_HOME_OF)


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'dmlcpu.batch' has no attribute {name!r}")
    return getattr(importlib.import_module(f"dmlcpu.batch.{_HOME_OF[name]}"), name)


def __dir__() -> list[str]:
    return __all__
