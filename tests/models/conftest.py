import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def save(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], Path]:
    """Save a model, or any text, in a folder of its own; the current directory is another one beside it."""
    folder = tmp_path / "models"
    folder.mkdir()
    (tmp_path / "cwd").mkdir()
    monkeypatch.chdir(tmp_path / "cwd")

    def save_model(model: Any) -> Path:
        path = folder / "model.json"
        path.write_text(model if isinstance(model, str) else json.dumps(model), "utf-8")
        return path

    return save_model


@pytest.fixture
def folder(save: Callable[[Any], Path]) -> Path:
    """Where models are saved, and ONNX models beside them."""
    return save({}).parent
