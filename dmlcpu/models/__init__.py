"""DxDispatch models: JSON files of buffers, operators and commands.

The names load on first use, so that importing the package imports neither Numba nor NumPy.
"""

from typing import TYPE_CHECKING

from dmlcpu.common.imports import attach

if TYPE_CHECKING:
    from dmlcpu.models.faults import ModelError as ModelError
    from dmlcpu.models.model import Model as Model, load_model as load_model
    from dmlcpu.models.runner import RunError as RunError, Timing as Timing, run_model as run_model

_HOMES = {"faults": ("ModelError",), "model": ("Model", "load_model"), "runner": ("RunError", "Timing", "run_model")}
_HOME_OF = {name: f"dmlcpu.models.{home}" for home, names in _HOMES.items() for name in names}

__all__ = sorted(_HOME_OF)


if not TYPE_CHECKING:  # with __getattr__, type checkers would accept any name
    __getattr__, __dir__ = attach("dmlcpu.models", _HOME_OF, __all__)
