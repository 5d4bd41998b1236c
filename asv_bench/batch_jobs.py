"""Time `dmlcpu batch`: a plain loop and a batch over many small files; cat and a batch on a file larger than memory.

    python asv_bench/batch_jobs.py small --jobs 10000
    python asv_bench/batch_jobs.py large --gigabytes 8 --max-memory 512M

Contenders run alternately, each in its own process, so that a figure is the time for which a script waits. --turns is
the number of runs of each, and a figure is their median. Lines of the large file end with the process's peak memory.
Files are created in --folder and removed at the end. They have just been written, so they come from the system's cache
unless they are larger than that. For a minute and a half after many files were removed, ext4 takes up to three times as
long to create new ones.
"""

import argparse
import itertools
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

LOOP = """\
import sys
from pathlib import Path
import numpy as np
import dmlcpu
out = Path(sys.argv[2])
out.mkdir()
for path in sorted(Path(sys.argv[1]).glob("*.npy")):
    values, indices = dmlcpu.top_k(np.load(path), 10)
    {save}
"""
SAVE = {
    "np.savez": 'np.savez(out / f"{path.stem}.npz", values=values, indices=indices)',
    "np.save of the values": 'np.save(out / f"{path.stem}.npy", values)',
}
DMLCPU = [sys.executable, "-m", "dmlcpu"]


def run(command, output=subprocess.DEVNULL):
    """Run a command; return its seconds and its peak memory in bytes."""
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=output)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{' '.join(command)} ended with {os.waitstatus_to_exitcode(status)}")
    return time.perf_counter() - start, usage.ru_maxrss * 1024


def small(folder, jobs, turns):
    """Time jobs of 64 KB."""
    source = folder / "in"
    source.mkdir()
    rng = np.random.default_rng(0)
    for i in range(jobs):
        np.save(source / f"{i}.npy", rng.random((16, 1024), np.float32))
    contenders = {f"loop of np.load, top_k, {name}": ("loop", save) for name, save in SAVE.items()}
    for suffix, output in (("to .npz", "{out}/{{stem}}.npz"), ("values to .npy", "{out}/{{stem}}.npy")):
        for workers in (1, 2):
            contenders[f"dmlcpu batch --jobs {workers}, {suffix}"] = (str(workers), output)
    seconds, number = {name: [] for name in contenders}, itertools.count()
    for turn in range(turns + 1):  # the first warms up
        for name, (kind, what) in contenders.items():
            run_number = next(number)
            out = folder / f"out{run_number}"
            if kind == "loop":
                command = [sys.executable, "-c", LOOP.format(save=what), str(source), str(out)]
            else:
                output = what.format(out=out)
                wanted = f'"{output}"' if output.endswith("z") else f'{{ values = "{output}" }}'
                listing = folder / f"jobs{run_number}.toml"  # a new name, so that it has its own manifest
                job = f'glob = "in/*.npy"\nop = "top_k"\nattrs = {{ k = 10 }}\noutput = {wanted}\n'
                listing.write_text(f"[[job]]\n{job}")
                command = [*DMLCPU, "batch", str(listing), "--quiet", "--jobs", kind]
            taken, _ = run(command)
            if turn:
                seconds[name].append(taken)
    for name, taken in seconds.items():
        median = statistics.median(taken)
        print(f"{name:45} {median:7.2f} s {median / jobs * 1e3:6.3f} ms a job")


def large(folder, gigabytes, memory, turns):
    """Time one .npy file, along either axis."""
    path = folder / "large.npy"
    columns = 1 << 14
    rows = int(gigabytes * 2**30 / 4 / columns)
    block = np.random.default_rng(0).standard_normal((256, columns), np.float32)
    header = {"descr": "<f4", "fortran_order": False, "shape": (rows, columns)}
    with path.open("wb") as file:  # not mapped: a child's peak memory begins with that of the process that forks it
        np.lib.format.write_array_header_1_0(file, header)
        for start in range(0, rows, 256):
            np.roll(block, start, 1)[: rows - start].tofile(file)
    out = ["-o", str(folder / "out.npz")]
    top_k = [*DMLCPU, "top-k", str(path), "--k", "100", "--max-memory", memory, "--quiet", *out]
    contenders = {
        "cat": ["cat", str(path)],
        "top-k along the rows": [*top_k, "--axis", "-1"],
        "top-k along the columns": [*top_k, "--axis", "0"],
    }
    taken = {name: [] for name in contenders}
    for turn in range(turns + 1):
        for name, command in contenders.items():
            figure = run(command)
            if turn:
                taken[name].append(figure)
    for name, figures in taken.items():
        median, most = statistics.median(seconds for seconds, _ in figures), max(peak for _, peak in figures)
        print(f"{name:25} {median:7.2f} s {gigabytes / median:6.2f} GiB/s, at most {most / 2**20:6.0f} MiB")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case", choices=("small", "large"))
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--gigabytes", type=float, default=8)
    parser.add_argument("--max-memory", default="512M")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="where files are created (default: where the system does)")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        if args.case == "small":
            small(Path(folder), args.jobs, args.turns)
        else:
            large(Path(folder), args.gigabytes, args.max_memory, args.turns)


if __name__ == "__main__":
    main()
