"""Run jobs on many files, and DxDispatch models.

The names load on first use, so that importing this module imports neither Numba nor NumPy.
"""

from typing import TYPE_CHECKING

from dmlcpu.common.imports import attach

if TYPE_CHECKING:
    from dmlcpu.common.faults import Fault as Fault
    from dmlcpu.jobs.dispatch import WorkerError as WorkerError
    from dmlcpu.jobs.dry_run import JobsPlan as JobsPlan, PlannedJob as PlannedJob, plan_jobs as plan_jobs
    from dmlcpu.jobs.faults import JobFault as JobFault, JobsError as JobsError
    from dmlcpu.jobs.manifest import ManifestError as ManifestError
    from dmlcpu.jobs.run import BatchResult as BatchResult, Failure as Failure, run_jobs as run_jobs
    from dmlcpu.jobs.status import JobsStatus as JobsStatus, jobs_status as jobs_status
    from dmlcpu.models.faults import ModelError as ModelError
    from dmlcpu.models.model import Model as Model, load_model as load_model
    from dmlcpu.models.runner import RunError as RunError, Timing as Timing, run_model as run_model

_HOMES = {
    "jobs.dispatch": ("WorkerError",),
    "jobs.dry_run": ("JobsPlan", "PlannedJob", "plan_jobs"),
    "jobs.faults": ("JobFault", "JobsError"),
    "jobs.manifest": ("ManifestError",),
    "jobs.run": ("BatchResult", "Failure", "run_jobs"),
    "jobs.status": ("JobsStatus", "jobs_status"),
    "common.faults": ("Fault",),
    "models": ("Model", "ModelError", "RunError", "Timing", "load_model", "run_model"),
}
_HOME_OF = {name: f"dmlcpu.{home}" for home, names in _HOMES.items() for name in names}

__all__ = sorted(_HOME_OF)


if not TYPE_CHECKING:  # with __getattr__, type checkers would accept any name
    __getattr__, __dir__ = attach("dmlcpu.batch", _HOME_OF, __all__)
