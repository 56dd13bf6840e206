"""Inference metadata: read with places, checked against the schema, typed."""
