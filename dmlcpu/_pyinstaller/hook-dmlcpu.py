"""What a frozen program needs from this package in addition to its imports."""

from PyInstaller.utils.hooks import collect_data_files, collect_submodules, copy_metadata

# Modules that are imported by name on first use: kernels, tables and operators. The program's own imports find the
# modules for other packages.
_OTHERS = tuple(f"dmlcpu.interop.{name}" for name in ("dask", "onnx", "torch"))
hiddenimports = collect_submodules("dmlcpu", lambda name: not name.startswith(_OTHERS), on_error="ignore")
# Numba finds its extensions by the metadata of packages.
datas = collect_data_files("dmlcpu") + copy_metadata("dmlcpu")
# Numba names cache entries by source files, which must be in a folder.
module_collection_mode = "py"
