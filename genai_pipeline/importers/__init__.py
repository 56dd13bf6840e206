"""Model files of other formats turned into packages, and the cache that keeps them."""
