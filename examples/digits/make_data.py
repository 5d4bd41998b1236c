"""Make the .npy files of this folder from scikit-learn's copy of the handwritten digits.

    pip install scikit-learn
    python make_data.py

Source: E. Alpaydin and C. Kaynak (1998), Optical Recognition of Handwritten Digits, UCI Machine Learning Repository,
https://doi.org/10.24432/C50P49, licensed CC BY 4.0; taken from sklearn.datasets.load_digits (scikit-learn is
BSD-3-Clause). Changed: each image is scaled to length 1 and quantized to 8 bits.
"""

from pathlib import Path

import numpy as np

STORED = 1500  # the first images are stored, the other 297 are queries


def quantize(images):
    """Return uint8 rows and float32 scales with scale * row close to the image scaled to length 1."""
    unit = images / np.sqrt((images * images).sum(axis=1, keepdims=True))
    # Pixels are not negative, so uint8 without a zero point uses all 8 bits; each image's brightest pixel becomes 255.
    scale = (unit.max(axis=1, keepdims=True) / 255).astype(np.float32)
    return np.rint(unit / scale).astype(np.uint8), scale[:, 0]


def make():
    """Return the arrays by file name."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    files = {}
    for name, part in [("stored", slice(None, STORED)), ("queries", slice(STORED, None))]:
        rows, scale = quantize(digits.data[part])
        files |= {name: rows, f"{name}_scale": scale, f"{name}_labels": digits.target[part].astype(np.uint8)}
    return files


if __name__ == "__main__":
    for name, array in make().items():
        np.save(Path(__file__).parent / f"{name}.npy", array)
