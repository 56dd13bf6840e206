"""What ONNX graphs of unknown origin are, told from their ports, states and nodes alone; nothing here knows a model."""
