"""Configuration of the documentation site; `make docs` builds it."""

import os
import sys
from importlib.metadata import version as installed_version
from importlib.util import find_spec
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
os.environ.setdefault("MPLBACKEND", "agg")

MATHJAX = Path(find_spec("sphinx-mathjax-offline").origin).parent

project = "visprism"
author = "The visprism developers"
project_copyright = "the visprism developers"
version = release = installed_version("visprism")

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.mathjax",
    "sphinx.ext.napoleon",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
    "generators",
]
exclude_patterns = ["_build", "generators", "generated/notebooks/*.ipynb"]
templates_path: list[str] = []
default_role = "code"
suppress_warnings = ["config.cache"]  # functions in the settings of the gallery

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 4

autodoc_typehints = "signature"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
napoleon_custom_sections = [("Class attributes", "params_style"), "Source", "Cost"]
python_maximum_signature_line_length = 80

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "generated/notebooks",
    "filename_pattern": r"\.py$",
    "within_subsection_order": "generators.notebooks.by_lesson",
    "image_scrapers": ("matplotlib",),
    "capture_repr": ("_repr_html_", "__repr__"),
    "ignore_repr_types": r"matplotlib|ndarray|tuple|list|dict",
    "matplotlib_animations": False,
    "remove_config_comments": True,
    "show_memory": False,
    "show_signature": False,
    "reset_modules": ("matplotlib", "generators.notebooks.in_empty_folder"),
    "default_thumb_file": str(Path(__file__).parent / "figures" / "report.png"),
    "download_all_examples": False,
    "write_computation_times": False,
    "min_reported_time": 0,
    "abort_on_example_error": False,
}

html_theme = "pydata_sphinx_theme"
html_title = "visprism"
html_static_path = ["static", str(MATHJAX / "static" / "mathjax" / "tex-svg.js")]
mathjax_path = "tex-svg.js"  # one file with its glyphs, for a site without a network
html_css_files = ["site.css"]
html_extra_path = ["static/llms.txt"]
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "logo": {"text": "visprism"},
    "navbar_align": "left",
    "header_links_before_dropdown": 7,
    "show_prev_next": False,
    "show_toc_level": 2,
    "navigation_depth": 2,
    "secondary_sidebar_items": {"**": ["page-toc"], "index": [], "generated/gallery": []},
    "footer_start": ["copyright"],
    "footer_end": [],
    "pygments_light_style": "tango",
    "pygments_dark_style": "monokai",
}
html_sidebars = {"index": [], "tutorial": []}
