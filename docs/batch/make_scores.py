"""Make the files that the guide works on: three in scores/, a thousand in nights/, and one that is larger."""

from pathlib import Path

import numpy as np

rng = np.random.default_rng(0)


def save(path, rows, columns):
    np.save(path, rng.random((rows, columns), np.float32))


for folder in ("scores", "nights"):
    Path(folder).mkdir(exist_ok=True)
for rows, day in enumerate(("monday", "tuesday", "wednesday"), 2):
    save(f"scores/{day}.npy", rows, 1000)
for night in range(1000):
    save(f"nights/{night:04}.npy", 1 + night % 8, 1000)
save("large.npy", 400, 10_000)
