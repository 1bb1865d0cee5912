"""How the pages are built: `make docs`.  Needs no network."""

from __future__ import annotations

import sys
from pathlib import Path

import redlock

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

project = "redlock-quorum"
author = "The redlock-quorum authors"
project_copyright = "The redlock-quorum authors, MIT licence"
release = redlock.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "contents",  # this and the next two are in _ext
    "docstrings",
    "timeline",
]
exclude_patterns = ["_build", "_ext", "_include"]
nitpicky = True  # a reference that leads nowhere is an error

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autoclass_content = "both"  # the options are told in `__init__`
autodoc_class_signature = "mixed"
napoleon_use_ivar = True
python_maximum_signature_line_length = 88

html_theme = "furo"
html_title = "redlock-quorum"
html_static_path = ["_static"]
html_css_files = ["pages.css"]
html_copy_source = False
html_show_sphinx = False
# The prompts of a shell are not what one wants to paste.
copybutton_exclude = ".linenos, .gp, .go"
