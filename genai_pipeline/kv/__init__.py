"""Caches of sequences: storage in the graph's own layout, counted in pages."""
