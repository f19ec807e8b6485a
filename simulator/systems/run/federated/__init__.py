"""Rounds of clients, and what secure aggregation adds to them."""
