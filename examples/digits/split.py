"""Split the digits into files of ten images, for the jobs of jobs.toml.

    python split.py

It writes split/queries/000.npz to 029.npz, with images and their scales, and split/stored.npz, whose images are
columns, as the product requires.
"""

from pathlib import Path

import numpy as np

IMAGES = 10  # in a file


def main():
    here = Path(__file__).parent
    folder = here / "split"
    (folder / "queries").mkdir(parents=True, exist_ok=True)
    stored, stored_scale, queries, queries_scale = (
        np.load(here / f"{name}.npy") for name in ("stored", "stored_scale", "queries", "queries_scale")
    )
    np.savez(folder / "stored.npz", images=stored.T, scale=stored_scale)
    starts = range(0, len(queries), IMAGES)
    for number, start in enumerate(starts):
        part = slice(start, start + IMAGES)
        np.savez(folder / "queries" / f"{number:03}.npz", images=queries[part], scale=queries_scale[part])
    print(f"{len(queries)} queries in {len(starts)} files, {len(stored)} stored images in one")


if __name__ == "__main__":
    main()
