"""What importers write graphs with: a tape of nodes, and weight matrices in the forms that ONNX Runtime multiplies."""
