"""`dmlcpu.top_k`, `scatter_nd` and `quantized_matmul` for functions that users compile with Numba.

Numba finds this by the entry point ``numba_extensions`` when it compiles something for the first time.
"""


def _init() -> None:
    """Tell Numba what the functions are in compiled code; nothing is compiled."""
    from dmlcpu.runtime.compilation import can_compile

    if can_compile():  # helpers that were made while compilation is off cannot be called from compiled code
        from dmlcpu.interop.numba import quantized_matmul, scatter_nd, top_k  # noqa: F401
