"""Training: recipes, and the loop that follows them."""
