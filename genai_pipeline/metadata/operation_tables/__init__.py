"""Declarations of the operations that are built in, a module per field."""
