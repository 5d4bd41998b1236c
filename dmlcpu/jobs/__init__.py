"""Jobs: operators and models run on many files."""
