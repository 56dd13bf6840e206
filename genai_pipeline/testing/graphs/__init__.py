"""Closed-form graphs: what they compute (rules), how they keep state (caches), and whole graphs made of both."""
