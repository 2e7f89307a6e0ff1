"""The file list is the pipeline, and arrows point one way: stages never import stages."""

import ast
import sys
from pathlib import Path

import pytest

import witness
from conftest import CALL

SOURCE = Path(witness.__file__).parent
STAGES = {
    *("audio", "segmentation", "embedding", "clustering", "reconstruction"),
    *("transcription", "corrections", "merging", "voices", "writers"),
}
# What stages are made of.
TOOLS = {
    *(
        "download",
        "fbank",
        "front",
        "loudness",
        "machine",
        "manifest",
        "models",
        "output",
        "page",
        "pictures",
        "probes",
        "rttm",
        "sessions",
        "source",
        "spool",
    ),
    *("stages", "stereo", "surgery", "tokens", "tracing", "vbx", "whisper_child"),
}
# What runs a model on an AMD GPU: the policy and what it stands on.
GPU = {"gpu", "rocm", "migraphx_child", "gpu_worker", "graphs", "migraphx"}
LAYERS = [
    {"__main__"},
    {"cli"},
    {"cli_bench", "cli_gpu", "cli_models"},
    {"console"},
    {"benchmark", "cluster", "contention", "speed"},
    {"batch", "bench_child", "bench_manifest", "bench_report", "enroll", "pool", "redo"},
    {"worker"},
    {"doctor", "pipeline", "report", "sound", "warmup"},
    {"outcome"},
    STAGES | {"scoring"},
    TOOLS | GPU,
    {"schema"},
    {"errors"},
]
# Within the tools, who may use whom.
TOOL_ARROWS = {
    "front": {"sessions", "surgery"},
    "machine": {"sessions"},
    "models": {"download"},
    "sessions": {"tracing"},
    "source": {"spool"},
    "stereo": {"spool"},
    "surgery": {"fbank", "output", "sessions"},
    "whisper_child": set(),
    "rocm": {"gpu", "sessions"},
    "migraphx_child": {"sessions"},
    "gpu_worker": {"rocm"},
    "graphs": {"output", "surgery"},
    "migraphx": {"gpu", "graphs", "rocm", "sessions", "gpu_worker"},
}


def imports(module: Path) -> set[str]:
    """The modules of ours that `module` imports when it is imported, types aside."""
    tree = ast.parse(module.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            node.body = []
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "witness":
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("witness."):
            found.add(node.module.split(".")[1])
        elif isinstance(node, ast.Import):
            found |= {a.name.split(".")[1] for a in node.names if a.name.startswith("witness.")}
    return {name for name in found if (SOURCE / f"{name}.py").exists()}


MODULES = sorted(SOURCE.glob("*.py"))


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_arrows_point_one_way(path):
    if path.stem == "__init__":
        assert not imports(path)
        return
    (level,) = [number for number, layer in enumerate(LAYERS) if path.stem in layer]
    below = set().union(*LAYERS[level + 1 :]) | TOOL_ARROWS.get(path.stem, set())
    assert imports(path) <= below


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_only_sessions_knows_onnxruntime(path):
    names = {
        alias.name.split(".")[0]
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Import)
        for alias in node.names
    }
    assert ("onnxruntime" in names) == (path.stem == "sessions")


def test_help_imports_nothing_heavy():
    import subprocess

    code = (
        "import sys\nfrom witness.cli import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"
        "print(sorted({name.split('.')[0] for name in sys.modules}), file=sys.stderr)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(ast.literal_eval(result.stderr.strip().splitlines()[-1]))
    assert "click" in loaded
    heavy = {
        "numpy",
        "scipy",
        "onnxruntime",
        "onnx",
        "rich",
        "huggingface_hub",
        "soundfile",
        "av",
        "soxr",
        "jinja2",
    }
    assert not loaded & heavy


def test_the_recogniser_starts_before_anything_heavy_is_imported(tmp_path):
    import subprocess

    (tmp_path / "model.bin").write_bytes(b"none")
    code = (
        "import subprocess, sys\n"
        "class Popen(subprocess.Popen):\n"
        "    def __init__(self, command, *args, **kwargs):\n"
        "        assert 'witness.whisper_child' in command\n"
        "        heavy = {'av', 'onnx', 'onnxruntime', 'scipy', 'soxr'} & set(sys.modules)\n"
        "        print('heavy:', sorted(heavy), file=sys.stderr)\n"
        "        raise SystemExit(0)\n"
        "subprocess.Popen = Popen\n"
        "from witness.cli import main\n"
        "main(sys.argv[1:])\n"
    )
    command = [sys.executable, "-c", code, "run", str(CALL), "--whisper", str(tmp_path / "model.bin")]
    command += ["--models", "builtin", "--offline", "--device", "cpu"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "heavy: []" in result.stderr
