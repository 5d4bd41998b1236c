"""A Dask cluster of this machine, for tests: its workers hold what they like, and a lost item is not tried again."""

import logging

import distributed
from dask import config


def local_cluster(count: int, *, processes: bool = True) -> "distributed.LocalCluster":
    """Start a scheduler, and workers of one thread; threads of this process if they are no processes."""
    with config.set({"distributed.scheduler.allowed-failures": 0}):
        return distributed.LocalCluster(
            n_workers=count,
            threads_per_worker=1,
            processes=processes,
            host="127.0.0.1" if processes else None,
            memory_limit=0,
            silence_logs=logging.CRITICAL,
            dashboard_address=None,
            scheduler_kwargs={"dashboard_address": "127.0.0.1:0"},  # its web server, which cannot be left out
        )
