"""A Dask cluster of this machine, for tests: its workers hold what they like, and a lost item is not tried again."""

import contextlib
import logging
import multiprocessing
from collections.abc import Iterator

import distributed
from dask import config

SETTINGS = {"distributed.scheduler.allowed-failures": 0}
if "forkserver" in multiprocessing.get_all_start_methods():  # a process that imports for all workers
    SETTINGS["distributed.worker.multiprocessing-method"] = "forkserver"
IMPORTED = ["distributed", "numba", "dmlcpu.jobs.serve"]


@contextlib.contextmanager
def local_cluster(count: int, *, threads: int = 1, processes: bool = True) -> "Iterator[distributed.LocalCluster]":
    """Start a scheduler, and workers; threads of this process if they are no processes."""
    with config.set(SETTINGS):
        distributed.utils.get_mp_context()  # else it would later say what to import
        multiprocessing.set_forkserver_preload(IMPORTED)
        with distributed.LocalCluster(
            n_workers=count,
            threads_per_worker=threads,
            processes=processes,
            host="127.0.0.1" if processes else None,
            memory_limit=0,
            silence_logs=logging.CRITICAL,
            dashboard_address=None,
            scheduler_kwargs={"dashboard_address": "127.0.0.1:0"},  # its web server, which cannot be left out
        ) as started:
            yield started
