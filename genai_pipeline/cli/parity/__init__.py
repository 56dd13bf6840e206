"""Whether a package answers as a reference does: another runtime, the original model, or tokens recorded before."""
