"""Figures that only the dashboard draws: pure functions from tables to plotly figures, one file each."""
