"""Exact search among vectors of bytes.

The names load on first use: importing the package imports neither Numba nor NumPy.
"""

from typing import TYPE_CHECKING

from dmlcpu.common.imports import attach

if TYPE_CHECKING:
    from dmlcpu.search.functions import knn as knn, semantic_search as semantic_search
    from dmlcpu.search.index import Int8Index as Int8Index
    from dmlcpu.search.neighbors import Int8NeighborsTransformer as Int8NeighborsTransformer

_HOME_OF = {
    "Int8Index": "dmlcpu.search.index",
    "Int8NeighborsTransformer": "dmlcpu.search.neighbors",  # needs scikit-learn
    "knn": "dmlcpu.search.functions",
    "semantic_search": "dmlcpu.search.functions",
}

__all__ = ["Int8Index", "knn", "semantic_search"]


if not TYPE_CHECKING:  # with __getattr__, type checkers would accept any name
    __getattr__, __dir__ = attach("dmlcpu.search", _HOME_OF, __all__)
