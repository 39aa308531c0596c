"""Models for other programs: as ONNX."""
