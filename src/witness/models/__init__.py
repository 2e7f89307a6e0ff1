"""The catalogue of models, their download and verification, and ONNX sessions."""
