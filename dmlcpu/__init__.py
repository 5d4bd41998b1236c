"""DirectML's operators around top-k, scatter and int8 products on any CPU.

The public names load on first use, so that importing the package imports neither Numba nor NumPy. The table of
`dmlcpu.operators` has the names of operators.
"""

TYPE_CHECKING = False  # importing it from typing would take longer than this whole module
if TYPE_CHECKING:
    __all__: list[str]

    from dmlcpu import (
        batch as batch,
        interop as interop,
        models as models,
        reference as reference,
        search as search,
    )
    from dmlcpu.at import add_at as add_at, maximum_at as maximum_at, minimum_at as minimum_at, put_at as put_at
    from dmlcpu.common.bound import BoundOperator as BoundOperator
    from dmlcpu.config import show_config as show_config
    from dmlcpu.directml.compiled import CompiledOperator as CompiledOperator, compile_operator as compile_operator
    from dmlcpu.directml.enums import (
        AxisDirection as AxisDirection,
        FeatureLevel as FeatureLevel,
        OperatorType as OperatorType,
        QuantizationType as QuantizationType,
        TensorDataType as TensorDataType,
        TensorFlags as TensorFlags,
    )
    from dmlcpu.directml.tensor import TensorDesc as TensorDesc
    from dmlcpu.errors import *  # noqa: F403
    from dmlcpu.operators.bind import bind as bind
    from dmlcpu.operators.descs import operator_desc_from_dict as operator_desc_from_dict
    from dmlcpu.operators.table import *  # noqa: F403
    from dmlcpu.products.packing import PackedMatrix as PackedMatrix, pack_b as pack_b
    from dmlcpu.runtime.threads import get_num_threads as get_num_threads, set_num_threads as set_num_threads

__version__ = "0.1.0"

_MODULES = ("batch", "interop", "models", "reference", "search")
_HOMES = {
    "dmlcpu.at": ("add_at", "maximum_at", "minimum_at", "put_at"),
    "dmlcpu.products.packing": ("PackedMatrix", "pack_b"),
    "dmlcpu.common.bound": ("BoundOperator",),
    "dmlcpu.config": ("show_config",),
    "dmlcpu.directml.compiled": ("CompiledOperator", "compile_operator"),
    "dmlcpu.directml.enums": (
        "AxisDirection",
        "FeatureLevel",
        "OperatorType",
        "QuantizationType",
        "TensorDataType",
        "TensorFlags",
    ),
    "dmlcpu.directml.tensor": ("TensorDesc",),
    "dmlcpu.operators.bind": ("bind",),
    "dmlcpu.operators.descs": ("operator_desc_from_dict",),
    "dmlcpu.errors": ("BindingError", "DmlError", "IndexOutOfRangeError", "InvalidDescriptorError", "UnsupportedError"),
    "dmlcpu.runtime.threads": ("get_num_threads", "set_num_threads"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

if not TYPE_CHECKING:  # with __getattr__, type checkers would accept any name

    def __getattr__(name: str) -> object:
        if name == "__all__":
            value: object = __dir__()
        elif name in _MODULES:
            value = _load(f"dmlcpu.{name}")
        elif home := _HOME_OF.get(name) or _homes_of_operators().get(name):
            value = getattr(_load(home), name)
        else:
            raise _unknown(name)
        globals()[name] = value  # the next lookup finds it without this function
        return value


def _load(module: str) -> object:
    from importlib import import_module  # only for a name that exists: at interpreter shutdown no import works

    return import_module(module)


def _unknown(name: str) -> AttributeError:
    try:
        from dmlcpu.common.imports import unknown

        if name.startswith("DML_"):
            from dmlcpu.operators.descs import spelled_here

            return unknown("dmlcpu", name, __dir__(), spelled_here(name))
        return unknown("dmlcpu", name, __dir__())
    except ImportError:  # the interpreter is shutting down
        return AttributeError(f"module 'dmlcpu' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*_HOME_OF, *_homes_of_operators(), *_MODULES, "__version__"])


def _homes_of_operators() -> dict[str, str]:
    try:
        from dmlcpu.operators.table import OPERATORS
    except ImportError:  # the interpreter is shutting down: report an unknown name
        return {}
    return {name: home for operator in OPERATORS.values() for name, home in operator.homes().items()}
