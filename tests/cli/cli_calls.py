"""A model for the command line, and the command line as a process."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dmlcpu

# Exit code, lines on stdout, lines on stderr.
Run = Callable[..., tuple[int, list[str], list[str]]]

MODEL: dict[str, Any] = {
    "resources": {
        "x": {"initialValuesDataType": "FLOAT32", "initialValues": [1, 9, 5, 7]},
        "values": {"initialValuesDataType": "FLOAT32", "initialValues": {"valueCount": 2, "value": 0}},
        "indices": {"initialValuesDataType": "UINT32", "initialValues": {"valueCount": 2, "value": 0}},
    },
    "dispatchables": {
        "topk": {
            "type": "TOP_K",
            "desc": {
                "InputTensor": {"DataType": "FLOAT32", "Sizes": [4]},
                "OutputValueTensor": {"DataType": "FLOAT32", "Sizes": [2]},
                "OutputIndexTensor": {"DataType": "UINT32", "Sizes": [2]},
                "Axis": 0,
                "K": 2,
            },
        }
    },
    "commands": [
        {
            "type": "dispatch",
            "dispatchable": "topk",
            "bindings": {"InputTensor": "x", "OutputValueTensor": "values", "OutputIndexTensor": "indices"},
        },
        {"type": "print", "resource": "values"},
        {"type": "writeFile", "resource": "indices", "targetPath": "indices.npy"},
    ],
}


def environment(**more: str) -> dict[str, str]:
    """Return the environment in which the command is found."""
    return {**os.environ, "PYTHONPATH": str(Path(dmlcpu.__file__).parents[1]), **more}


def python(*argv: object, **options: Any) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, *map(str, argv)], capture_output=True, text=True, timeout=300, **options)


def shell(command: str, model: Path) -> "subprocess.CompletedProcess[str]":
    env = {**os.environ, "PYTHONPATH": str(Path(dmlcpu.__file__).parents[1]), "PYTHON": sys.executable}
    env.pop("PYTHONUNBUFFERED", None)  # it would change which write fails
    return subprocess.run(command, shell=True, cwd=model.parent, env=env, capture_output=True, text=True, timeout=300)
