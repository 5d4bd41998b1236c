"""Jobs: operators and models run over many files."""
