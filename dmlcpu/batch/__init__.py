"""Run whole files: jobs over many of them, and DxDispatch models.

The names load on first use: importing the package, or its `faults`, imports neither Numba nor NumPy.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dmlcpu.batch.jobs.dispatch import WorkerError as WorkerError
    from dmlcpu.batch.jobs.dry_run import JobsPlan as JobsPlan, PlannedJob as PlannedJob, plan_jobs as plan_jobs
    from dmlcpu.batch.jobs.faults import JobFault as JobFault, JobsError as JobsError
    from dmlcpu.batch.jobs.manifest import ManifestError as ManifestError
    from dmlcpu.batch.jobs.outcomes import Failure as Failure
    from dmlcpu.batch.jobs.run import BatchResult as BatchResult, run_jobs as run_jobs
    from dmlcpu.common.faults import Fault as Fault
    from dmlcpu.models.faults import ModelError as ModelError
    from dmlcpu.models.model import Model as Model, load_model as load_model
    from dmlcpu.models.runner import RunError as RunError, Timing as Timing, run_model as run_model

_HOME_OF = {
    "BatchResult": "batch.jobs.run",
    "Failure": "batch.jobs.outcomes",
    "Fault": "common.faults",
    "JobFault": "batch.jobs.faults",
    "JobsError": "batch.jobs.faults",
    "JobsPlan": "batch.jobs.dry_run",
    "ManifestError": "batch.jobs.manifest",
    "Model": "models.model",
    "ModelError": "models.faults",
    "PlannedJob": "batch.jobs.dry_run",
    "RunError": "models.runner",
    "Timing": "models.runner",
    "WorkerError": "batch.jobs.dispatch",
    "load_model": "models.model",
    "plan_jobs": "batch.jobs.dry_run",
    "run_jobs": "batch.jobs.run",
    "run_model": "models.runner",
}

__all__ = sorted(_HOME_OF)


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'dmlcpu.batch' has no attribute {name!r}")
    return getattr(importlib.import_module(f"dmlcpu.{_HOME_OF[name]}"), name)


def __dir__() -> list[str]:
    return __all__
