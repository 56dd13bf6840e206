"""Measuring under load: load shapes, contestants that run them, what was measured, and processes that take turns."""
