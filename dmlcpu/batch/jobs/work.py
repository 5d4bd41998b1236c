"""Carrying out jobs, in whatever process."""

from collections.abc import Callable, Iterator

from dmlcpu.batch.jobs.bundles import in_bundles
from dmlcpu.batch.jobs.pipeline import Pipeline
from dmlcpu.batch.jobs.step import Outcome, Settings, Task


def serve(settings: Settings, tasks: Iterator[Task], stopping: Callable[[], bool]) -> Iterator[list[Outcome]]:
    """Carry out tasks and yield their outcomes, in order; once `stopping` is true, only of those that are finished."""
    if settings.bundle:
        yield from in_bundles(settings, tasks, stopping)
        return
    pipeline = Pipeline(settings, tasks, stopping)
    try:
        for outcome in pipeline.outcomes():
            yield [outcome]
    finally:
        pipeline.close()
