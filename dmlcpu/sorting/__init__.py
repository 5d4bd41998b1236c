"""What sort, argsort and sort_with_indices share."""
