"""Images: labeled images by name, and the batches that a model takes."""
