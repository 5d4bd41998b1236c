"""Exact search among vectors of bytes.

The names load on first use: importing the package imports neither Numba nor NumPy.
"""

import importlib
from typing import TYPE_CHECKING, Any

from dmlcpu.common.names import unknown

if TYPE_CHECKING:
    from dmlcpu.search.functions import knn as knn, semantic_search as semantic_search
    from dmlcpu.search.index import Int8Index as Int8Index
    from dmlcpu.search.neighbors import Int8NeighborsTransformer as Int8NeighborsTransformer

_HOME_OF = {
    "Int8Index": "index",
    "Int8NeighborsTransformer": "neighbors",  # needs scikit-learn
    "knn": "functions",
    "semantic_search": "functions",
}

__all__ = ["Int8Index", "knn", "semantic_search"]


if not TYPE_CHECKING:  # with __getattr__, type checkers would accept any name

    def __getattr__(name: str) -> Any:
        if name not in _HOME_OF:
            raise unknown("dmlcpu.search", name, __all__)
        return getattr(importlib.import_module(f"dmlcpu.search.{_HOME_OF[name]}"), name)


def __dir__() -> list[str]:
    return __all__
