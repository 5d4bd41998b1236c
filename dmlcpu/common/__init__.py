"""What several operators share: checks of arguments, data types, packed matrices, the plan of products."""
