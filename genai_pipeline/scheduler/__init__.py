"""Planning of engine steps in integers: no arrays, no sessions, testable without a model."""
