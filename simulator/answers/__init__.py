"""Many predictions, and what one rests on: sweep, search, explain, compare, validate."""
