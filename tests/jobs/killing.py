"""Runs of jobs that are killed: a process that has imported everything, and loaded the kernel, forks for each of them.

Half of them are killed so long after they began, half so long after they recorded some outcomes. Prints for each how
many outcomes were recorded then, and waits for a line: the test looks at the files before the next run begins.
"""

import os
import random
import signal
import sys
import time
from pathlib import Path

import numpy as np

import dmlcpu
from dmlcpu.batch import run_jobs
from dmlcpu.files import npz  # noqa: F401 - it is not to be imported by each
from dmlcpu.runtime import threads


def main(jobs: str, workers: int, kills: int, longest: float, seed: int) -> None:
    threads.set_num_threads(1)
    dmlcpu.top_k(np.zeros((40, 100), np.float32), 20)
    generator = random.Random(seed)
    manifest = Path(f"{jobs}.manifest.jsonl")

    def lines() -> int:
        return len(manifest.read_bytes().splitlines()) if manifest.exists() else 0

    while kills:
        child = os.fork()
        if child == 0:
            os.setpgid(0, 0)
            code = 99
            try:
                code = run_jobs(jobs, workers=workers, threads=1).exit_code
            finally:
                os._exit(code)
        pause, more, end = generator.uniform(0, longest), generator.randrange(40), time.monotonic() + 10
        if generator.random() < 0.5:
            pause, before = pause / 50, lines()
            while os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None and time.monotonic() < end:
                # When it begins, a run takes out the records of what it is to do.
                before = min(before, lines())
                time.sleep(0.001)
                if lines() > before + more:
                    break
        time.sleep(pause)
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status):
            kills -= 1
            print("killed", lines(), flush=True)
        else:
            print("done", os.WEXITSTATUS(status), flush=True)
        sys.stdin.readline()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]), int(sys.argv[5]))
