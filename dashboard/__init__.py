"""Explore configurations in the browser (Dash). Imports `simulator`; never torch nor `calibrate`."""
