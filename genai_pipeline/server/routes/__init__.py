"""One module per group of routes; each has ``ROUTES``, which ``app`` puts together."""
