"""Sweeps in the browser: start one (`run`), read the points of one (`points`), what the page is made of (`parts`)."""
