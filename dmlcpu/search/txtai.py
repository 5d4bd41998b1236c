"""A backend of txtai, which has to be installed: ``Embeddings(backend="dmlcpu.search.txtai.Int8")``."""

from typing import Any

import numpy as np

from dmlcpu.common.imports import optional
from dmlcpu.search.index import Int8Index

optional("txtai", "dmlcpu.search.txtai needs", "'dmlcpu[txtai]'")

from txtai.ann.base import ANN  # noqa: E402


class Int8(ANN):  # type: ignore[misc]
    """Exact search among vectors of bytes, as txtai's ``ann.backend``.

    txtai normalizes its vectors, so that inner products are cosines. Its configuration may have a section ``int8``
    with ``rescore``: that many times as many are scored again as floats, which are then kept, too.
    """

    def setting(self, name: str, default: Any = None) -> Any:
        """Return a setting of the section ``int8``."""
        return self.config.get("int8", {}).get(name, default)

    def load(self, path: str) -> None:
        """Load a saved index."""
        self.backend = Int8Index.load(path)

    def index(self, embeddings: Any) -> None:
        """Build the index of vectors (N, D); their ids are 0 to N - 1."""
        ids = np.arange(len(embeddings))
        self.backend = Int8Index(embeddings, ids=ids, floats=True if self.setting("rescore") else None)
        self.config["offset"] = len(embeddings)
        self.metadata({"rescore": self.setting("rescore")})

    def append(self, embeddings: Any) -> None:
        """Add vectors, whose ids follow those given before."""
        first = self.config["offset"]
        self.backend.add_with_ids(embeddings, np.arange(first, first + len(embeddings)))
        self.config["offset"] += len(embeddings)
        self.metadata()

    def delete(self, ids: Any) -> None:
        """Remove vectors."""
        self.backend.remove_ids(list(ids))

    def search(self, queries: Any, limit: int) -> list[list[tuple[int, float]]]:
        """Return (id, score) of the best vectors of each query."""
        scores, ids = self.backend.search(queries, limit, rescore=self.setting("rescore"))
        pairs = zip(ids.tolist(), scores.tolist(), strict=True)
        return [[(i, score) for i, score in zip(*row, strict=True) if i >= 0] for row in pairs]

    def count(self) -> int:
        """Return the number of vectors."""
        return int(self.backend.ntotal)

    def save(self, path: str) -> None:
        """Save to a folder."""
        self.backend.save(path)
