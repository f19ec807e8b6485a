"""One prediction as a summary and as files."""
