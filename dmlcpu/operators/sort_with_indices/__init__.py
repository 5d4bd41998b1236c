"""sort_with_indices."""
