"""sort."""
