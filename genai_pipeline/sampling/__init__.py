"""Options of generation and the choice of the next token."""
