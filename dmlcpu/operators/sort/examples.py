"""Small calls of sort; the family has them."""

from dmlcpu.operators.table import Workload
from dmlcpu.sorting.examples import desc_examples as desc_examples, examples as examples, sort_of_rows


def workload(nbytes: int) -> Workload:
    """Return the sort of each 10,000 numbers."""
    return sort_of_rows(nbytes, 4)
