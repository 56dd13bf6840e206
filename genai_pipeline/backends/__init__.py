"""Runtimes behind one protocol: ONNX Runtime is the default and the reference."""
