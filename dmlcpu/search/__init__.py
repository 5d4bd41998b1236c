"""Exact search among vectors of floats or bytes.

The names load on first use: importing the package imports neither Numba nor NumPy.
"""

from typing import TYPE_CHECKING

from dmlcpu.common.imports import attach

if TYPE_CHECKING:
    from dmlcpu.search.float_index import FloatIndex as FloatIndex
    from dmlcpu.search.found import Report as Report
    from dmlcpu.search.functions import knn as knn, semantic_search as semantic_search
    from dmlcpu.search.int8_index import Int8Index as Int8Index
    from dmlcpu.search.neighbors import NeighborsTransformer as NeighborsTransformer

_HOME_OF = {
    "FloatIndex": "dmlcpu.search.float_index",
    "Int8Index": "dmlcpu.search.int8_index",
    "NeighborsTransformer": "dmlcpu.search.neighbors",  # needs scikit-learn
    "Report": "dmlcpu.search.found",
    "knn": "dmlcpu.search.functions",
    "semantic_search": "dmlcpu.search.functions",
}

__all__ = ["FloatIndex", "Int8Index", "Report", "knn", "semantic_search"]


if not TYPE_CHECKING:  # with __getattr__, type checkers would accept any name
    __getattr__, __dir__ = attach("dmlcpu.search", _HOME_OF, __all__)
