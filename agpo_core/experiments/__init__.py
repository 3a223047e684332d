"""Grids of runs, the tables and figures made of them, and the notebooks that show them."""
