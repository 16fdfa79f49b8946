"""The documentation site: `make docs` builds it into build/docs, `make check` too, with warnings as errors.

Nothing is fetched, neither when it is built nor when it is read.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

project = "tidemark"
release = tomllib.loads((HERE.parent / "pyproject.toml").read_text())["project"]["version"]
html_title = f"{project} {release}"

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "extension.commands",
    "extension.docstrings",
    "extension.rooms",
]
root_doc = "index"
smartquotes = False  # they would make one dash of the two of an option

html_theme = "furo"
html_theme_options: dict[str, list[str]] = {"footer_icons": [], "top_of_page_buttons": []}
html_copy_source = html_show_sourcelink = False
html_show_copyright = html_show_sphinx = False
html_static_path = ["extension/site.css"]
html_css_files = ["site.css"]

# Anchors of headings down to the third level; a link to one that is not there is a warning, so an error.
myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence", "deflist"]

# Notebooks are shown as they were committed: tests execute them.
nb_execution_mode = "off"
nb_merge_streams = True

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88
default_role = "literal"
add_module_names = False
