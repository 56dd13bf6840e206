"""Drafts of the next tokens: who makes them, how many, and what came of it."""
