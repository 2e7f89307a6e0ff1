"""The separator as ONNX, its matrices as float16: python export_separator.py snapshots/separator-3.npz separator.onnx.

The first argument may be the net.pt of a training, too.
"""

import sys

import numpy as np
import onnx
import torch
from onnx import helper, numpy_helper
from separator import Separator

net = Separator()
path = sys.argv[1]
state = np.load(path) if path.endswith(".npz") else torch.load(path, weights_only=True, map_location="cpu")
net.load_state_dict({k: torch.as_tensor(state[k]).float() for k in state})
net.eval()
torch.onnx.export(
    net,
    (torch.randn(1, 400, 257, 2), torch.ones(1, 400, 2)),
    sys.argv[2],
    input_names=["spectrum", "active"],
    output_names=["voices"],
    dynamic_axes={"spectrum": {1: "frames"}, "active": {1: "frames"}, "voices": {1: "frames"}},
    opset_version=17,
    dynamo=False,
)
model = onnx.load(sys.argv[2])
casts = []
for tensor in model.graph.initializer:
    if tensor.data_type == onnx.TensorProto.FLOAT and np.prod(tensor.dims) > 1000:
        half = numpy_helper.from_array(
            numpy_helper.to_array(tensor).astype(np.float16), tensor.name + "_half"
        )
        casts.append(helper.make_node("Cast", [half.name], [tensor.name], to=onnx.TensorProto.FLOAT))
        tensor.CopyFrom(half)
for node in reversed(casts):
    model.graph.node.insert(0, node)
onnx.checker.check_model(model)
onnx.save(model, sys.argv[2])
