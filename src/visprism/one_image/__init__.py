"""Look: one page that shows what networks do with one image."""
