"""Carrying out jobs, in whatever process."""

from collections.abc import Callable, Iterator

from dmlcpu.batch.jobs.arguments import Tell
from dmlcpu.batch.jobs.bundles import in_bundles
from dmlcpu.batch.jobs.pipeline import Pipeline
from dmlcpu.batch.jobs.step import Outcome, Settings, Task


def serve(
    settings: Settings, tasks: Iterator[Task], stopping: Callable[[], bool], tell: Tell = lambda _: None
) -> Iterator[list[Outcome]]:
    """Carry out tasks and yield their outcomes, in order; once `stopping` is true, only of those that are finished.

    tell: told how many bytes jobs in blocks have read, by any thread, whenever they have read some.
    """
    if settings.bundle:
        yield from in_bundles(settings, tasks, stopping, tell)
        return
    pipeline = Pipeline(settings, tasks, stopping, tell)
    try:
        for outcome in pipeline.outcomes():
            yield [outcome]
    finally:
        pipeline.close()
