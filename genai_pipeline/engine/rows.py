"""Keeping the rows of a decode batch together, where graphs address a batch as one range of rows."""

from __future__ import annotations

from collections.abc import Collection


def compaction(decoding: Collection[int], taken: Collection[int]) -> list[tuple[int, int]]:
    """Moves (source, target) after which the b decoding rows are [0, b); every target is free when its turn comes.

    ``taken`` are all rows in use, decoding ones included. A row in the way that does not decode moves to the lowest
    free row at or after b; the pool has one row more than sequences, so that there is one.
    """
    b = len(decoding)
    # Free holes first: filling them frees rows at or after b, which the rows in the way then move to.
    holes = sorted((row for row in range(b) if row not in decoding), key=lambda row: (row in taken, row))
    if not holes:
        return []
    outside = sorted(row for row in decoding if row >= b)
    occupied = set(taken)
    moves: list[tuple[int, int]] = []
    for hole, source in zip(holes, outside, strict=True):
        if hole in occupied:
            spare = b
            while spare in occupied:
                spare += 1
            moves.append((hole, spare))
            occupied.add(spare)
        moves.append((source, hole))
        occupied.add(hole)
        occupied.discard(source)
    return moves


def consecutive(rows: Collection[int]) -> list[tuple[int, ...]]:
    """Sorted rows cut into runs of consecutive numbers."""
    groups: list[list[int]] = []
    for row in sorted(rows):
        if groups and groups[-1][-1] == row - 1:
            groups[-1].append(row)
        else:
            groups.append([row])
    return [tuple(group) for group in groups]
