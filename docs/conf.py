"""Sphinx's settings. From the root, with the extras cli and docs: python -m sphinx -W -b html docs docs/_build/html"""

import importlib.util
import sys
from pathlib import Path

from sphinx.ext.autodoc.mock import _MockObject

import dmlcpu

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

project = "dmlcpu"
author = "The dmlcpu developers"
release = version = dmlcpu.__version__

# No intersphinx: the site builds without a network.
extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "numpydoc",
    "sphinx_copybutton",
    "sphinx_design",
    "myst_parser",
    "from_the_package",
    "page_links",
    "pictures",
]
exclude_patterns = ["_build"]
default_role = "py:obj"

autosummary_generate = False  # its tables point at the directives in api/
autodoc_typehints = "none"  # numpydoc's sections tell the types
autodoc_preserve_defaults = True
# Pages can be built without the packages that dmlcpu.interop is for.
autodoc_mock_imports = [name for name in ("dask", "onnx", "torch") if importlib.util.find_spec(name) is None]
if "onnx" in autodoc_mock_imports:
    autodoc_mock_imports.append("google")  # protobuf, which onnx would bring
_MockObject.__or__ = _MockObject.__ror__ = lambda self, _: self  # in annotations: Tensor | None
autodoc_member_order = "bysource"
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False

# What is copied can be pasted: without prompts, and without what was printed.
copybutton_prompt_text = r">>> |\.\.\. |\$ |> "
copybutton_prompt_is_regexp = True

html_theme = "furo"
pygments_dark_style = "github-dark"
html_title = f"dmlcpu {release}"
html_copy_source = False
html_show_copyright = False
html_static_path = ["_static"]
html_css_files = ["custom.css"]
html_favicon = "_static/favicon.svg"
html_theme_options = {"light_logo": "logo.svg", "dark_logo": "logo-dark.svg"}
