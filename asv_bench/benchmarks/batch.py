"""Jobs over files: small jobs beside a plain loop, and a large array in blocks."""

import itertools
import shutil
import tempfile
from pathlib import Path

import numpy as np

import dmlcpu
from dmlcpu.batch import run_jobs

SMALL = 200  # files of 64 KB
CONTENDERS = ["dmlcpu", "numpy loop"]


class Small:
    """Many small files, read, computed and written."""

    params = (CONTENDERS,)
    version = "1"
    param_names = ("contender",)
    number = 1  # each call writes to a new folder

    def setup(self, contender):
        self.folder = Path(tempfile.mkdtemp())
        rng = np.random.default_rng(0)
        for i in range(SMALL):
            np.save(self.folder / f"{i}.npy", rng.random((16, 1024), np.float32))
        self.names = (self.folder / f"out{i}" for i in itertools.count())
        self.time_jobs(contender)

    def teardown(self, contender):
        shutil.rmtree(self.folder)

    def time_jobs(self, contender):
        out = next(self.names)
        if contender == "dmlcpu":
            job = {"glob": "*.npy", "op": "top_k", "attrs": {"k": 10}, "output": f"{out}/{{stem}}.npz"}
            return run_jobs([job], directory=self.folder).done
        out.mkdir()
        for path in self.folder.glob("*.npy"):
            values, indices = dmlcpu.top_k(np.load(path), 10)
            np.savez(out / f"{path.stem}.npz", values=values, indices=indices)
        return len(list(out.iterdir()))


class Blocks:
    """One file of 256 MB, read as a whole or in blocks within 64 MB."""

    params = (["8G", "64M"], [0, 1])
    version = "1"
    param_names = ("max_memory", "axis")
    number = 1

    def setup(self, max_memory, axis):
        self.folder = Path(tempfile.mkdtemp())
        np.save(self.folder / "x.npy", np.random.default_rng(0).random((1 << 12, 1 << 14), np.float32))
        self.time_job(max_memory, axis)

    def teardown(self, max_memory, axis):
        shutil.rmtree(self.folder)

    def time_job(self, max_memory, axis):
        job = {"op": "top_k", "inputs": {"x": "x.npy"}, "attrs": {"k": 100, "axis": axis}, "output": "out.npz"}
        return run_jobs([job], directory=self.folder, max_memory=max_memory).done
