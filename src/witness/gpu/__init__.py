"""One model with one pinned shape on an AMD GPU, through onnxruntime's MIGraphX provider."""
