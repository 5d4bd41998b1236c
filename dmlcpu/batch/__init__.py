"""Run whole files: jobs over many of them, and DxDispatch models.

The names load on first use: importing the package, or its `faults`, imports neither Numba nor NumPy.
"""

from typing import TYPE_CHECKING

from dmlcpu.common.names import lazy

if TYPE_CHECKING:
    from dmlcpu.batch.jobs.dispatch import WorkerError as WorkerError
    from dmlcpu.batch.jobs.dry_run import JobsPlan as JobsPlan, PlannedJob as PlannedJob, plan_jobs as plan_jobs
    from dmlcpu.batch.jobs.faults import JobFault as JobFault, JobsError as JobsError
    from dmlcpu.batch.jobs.manifest import ManifestError as ManifestError
    from dmlcpu.batch.jobs.outcomes import Failure as Failure
    from dmlcpu.batch.jobs.run import BatchResult as BatchResult, run_jobs as run_jobs
    from dmlcpu.batch.jobs.status import JobsStatus as JobsStatus, jobs_status as jobs_status
    from dmlcpu.common.faults import Fault as Fault
    from dmlcpu.models import (
        Model as Model,
        ModelError as ModelError,
        RunError as RunError,
        Timing as Timing,
        load_model as load_model,
        run_model as run_model,
    )

else:  # with __getattr__, type checkers would accept any name
    __all__, __getattr__, __dir__ = lazy(
        "dmlcpu.batch",
        {
            "dmlcpu.batch.jobs.dispatch": ("WorkerError",),
            "dmlcpu.batch.jobs.dry_run": ("JobsPlan", "PlannedJob", "plan_jobs"),
            "dmlcpu.batch.jobs.faults": ("JobFault", "JobsError"),
            "dmlcpu.batch.jobs.manifest": ("ManifestError",),
            "dmlcpu.batch.jobs.outcomes": ("Failure",),
            "dmlcpu.batch.jobs.run": ("BatchResult", "run_jobs"),
            "dmlcpu.batch.jobs.status": ("JobsStatus", "jobs_status"),
            "dmlcpu.common.faults": ("Fault",),
            "dmlcpu.models": ("Model", "ModelError", "RunError", "Timing", "load_model", "run_model"),
        },
    )
