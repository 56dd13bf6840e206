"""The engine: one thread that plans steps, runs graphs, chooses tokens and commits."""
