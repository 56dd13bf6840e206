"""Metadata compiled with networkx, checked against the graphs, and frozen into an execution plan."""
