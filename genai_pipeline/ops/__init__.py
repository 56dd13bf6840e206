"""Host operations: what stages with ``op:`` run."""
