"""Reports: results of several models as one self-contained HTML page."""
