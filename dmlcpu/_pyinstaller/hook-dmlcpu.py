"""What a frozen program needs of this package besides what its imports say."""

from PyInstaller.utils.hooks import collect_data_files, collect_submodules, copy_metadata

# Modules that are imported by name, when they are first used: kernels, tables and operators. What is for other packages
# is found by the program's own imports.
_OTHERS = tuple(f"dmlcpu.interop.{name}" for name in ("dask", "onnx", "torch"))
hiddenimports = collect_submodules("dmlcpu", lambda name: not name.startswith(_OTHERS), on_error="ignore")
# Numba finds what to call by the metadata of packages.
datas = collect_data_files("dmlcpu") + copy_metadata("dmlcpu")
# Numba names the entries of its cache by source files, which have to lie in a folder.
module_collection_mode = "py"
