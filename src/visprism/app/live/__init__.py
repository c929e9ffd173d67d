"""Live panels: measurements of one image or a few that answer while one watches."""
