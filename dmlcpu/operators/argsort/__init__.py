"""argsort."""
