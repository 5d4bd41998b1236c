"""Measure the sizes from which dmlcpu takes calls of PyTorch's operators, and print the table of shipped sizes.

    python asv_bench/torch_thresholds.py [--operators topk ...] [--types float32 ...] [--threads 1 2]

The output is the table of dmlcpu/interop/torch/shipped.py. A size holds for all types: it is that of the slowest type.
"""

import argparse
import itertools
import math

import torch

from dmlcpu.interop.torch.switches import _SWITCHES
from dmlcpu.interop.torch.thresholds import THRESHOLDS

ALONG = ("one row", "rows", "short rows", "strided")
ROWS = ("elements", "short rows", "rows", "long rows")
FORMS = {
    **{name: [*itertools.product(ALONG, ("few", "many"))] for name in ("topk", "kthvalue")},
    **{name: [(form,) for form in ALONG] for name in ("sort", "median", "nanmedian", "argmax", "argmin")},
    "unique": [("values",)],
    "_int_mm": [*itertools.product(("one", "few", "many"), ("rows", "columns"))],
    "index_add_": [(form,) for form in (*ROWS, "lines")],
    "gather": [("elements",), ("columns",), ("lines",)],
    "index_put_": [*itertools.product(ROWS, ("one index", "several indices"), ("add", "assign"))],
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--operators", nargs="*", default=[*_SWITCHES], choices=[*_SWITCHES])
    parser.add_argument("--types", nargs="*", default=["float32", "int64", "bfloat16"])
    parser.add_argument("--threads", nargs="*", type=int, default=[1, 2])
    options = parser.parse_args()
    for override in (_SWITCHES[name].override for name in options.operators):
        print(f'    "{override.name}": {{')
        for forms in FORMS.get(override.name, [(each,) for each in (*ROWS, "columns", "lines")]):
            sizes = [most(override, forms, options.types, count) for count in options.threads]
            print(f"        {forms}: ({', '.join(map(str, sizes))}),", flush=True)
        print("    },")


def most(override, forms, types, threads):
    """Return the size from which calls of all types are faster, or None if none is."""
    torch.set_num_threads(threads)
    kinds = [forms] if override.name == "_int_mm" else [(each, *forms) for each in types]
    sizes = [size_of(override, kind) for kind in kinds if not override.refusal(*override.sample(kind, 1 << 18))]
    return None if math.inf in sizes else max(sizes)


def size_of(override, kind):
    """Return the least measured size from which calls of all greater sizes are faster."""
    won = THRESHOLDS.measure(override, torch.library.get_kernel(override.operator, "CPU").call_boxed, kind)
    ours = [*itertools.takewhile(won.get, sorted(won, reverse=True))]
    return min(ours, default=math.inf)


if __name__ == "__main__":
    main()
