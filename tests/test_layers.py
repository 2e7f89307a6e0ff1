"""The folders are the pipeline, and arrows point one way."""

import ast
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import witness
from conftest import CALL

SOURCE = Path(witness.__file__).parent

# From the top down. A package (or a module beside the packages) may use its own modules and everything in the
# rows below its own, and nothing else.
LAYERS = (
    {"__main__"},
    {"cli"},
    {"serve"},
    {"bench", "doctor"},
    {"work"},
    {"pipeline"},
    {"transcript"},
    {"diarization", "recognition", "gpu", "formats"},
    {"audio", "models"},
    {"schema"},
    {"storage", "child"},
    {"formats.registry"},
    {"options", "progress", "web"},
    {"languages"},
    {"errors", "text", "tracing", "machine_limits", "_version"},
)
# The front door: it names what lies behind it, and imports none of it before it is asked to.
FRONT_DOOR = {"_version"}
# Modules whose methods call the functions of the front door, for programs that use them.
CALLERS = {"schema"}
# Modules with a row of their own, apart from their package.
APART = {"formats.registry"}


def name_of(path: Path) -> str:
    """`witness.gpu.graph_cache` of src/witness/gpu/graph_cache.py; a package goes by its own name."""
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(("witness", *(part for part in parts if part != "__init__")))


MODULES = {name_of(path): path for path in sorted(SOURCE.rglob("*.py"))}


def imports(path: Path) -> set[str]:
    """Every module of ours that `path` imports, at the top or inside a function, types aside."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            node.body = []
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            # `from witness import x` is the module x if there is one, and otherwise the front door itself.
            whole = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if name in MODULES else node.module for name in whole}
    return {name for name in found if name in MODULES}


def package(module: str) -> str:
    """The package of a module, or the module itself where it lies beside the packages."""
    _, _, inner = module.partition(".")
    return inner if inner in APART else inner.split(".")[0] or "witness"


def test_arrows_point_one_way():
    upward = {}
    for module, path in MODULES.items():
        used = {package(name) for name in imports(path)}
        if module == "witness":
            allowed = FRONT_DOOR
        else:
            (level,) = [number for number, layer in enumerate(LAYERS) if package(module) in layer]
            allowed = {package(module), *set().union(*LAYERS[level + 1 :])}
            allowed |= {"witness"} if package(module) in CALLERS else set()
        if used - allowed:
            upward[module] = sorted(used - allowed)
    assert upward == {}


def test_no_module_imports_itself_in_a_circle():
    """So each can be imported first: after its own package, and with what that imports."""
    arrows = {module: imports(path) - {module} for module, path in MODULES.items()}
    for module in arrows:
        if module.count(".") > 1:
            arrows[module].add(module.rpartition(".")[0])
    TopologicalSorter(arrows).prepare()  # raises CycleError


def test_a_class_has_a_name_of_its_own():
    """So a reader who meets a name knows what it is."""
    places: dict[str, list[str]] = {}
    for module, path in MODULES.items():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, []).append(module)
    assert {name: modules for name, modules in places.items() if len(modules) > 1} == {}


def test_only_sessions_knows_onnxruntime():
    users = {
        module
        for module, path in MODULES.items()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
        if "onnxruntime" in (alias.name.split(".")[0], (getattr(node, "module", None) or "").split(".")[0])
    }
    assert users == {"witness.models.session"}


def test_no_module_is_longer_than_800_lines_of_code():
    def lines_of_code(path: Path) -> int:
        tree = ast.parse(path.read_text())
        documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
        texts = {
            line
            for node in ast.walk(tree)
            if isinstance(node, documented) and ast.get_docstring(node, clean=False) is not None
            for line in range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1)
        }
        lines = path.read_text().splitlines()
        return sum(
            bool(line.strip()) and not line.lstrip().startswith("#") and number not in texts
            for number, line in enumerate(lines, start=1)
        )

    assert {module: n for module, path in MODULES.items() if (n := lines_of_code(path)) > 800} == {}


def test_help_imports_nothing_heavy():
    code = (
        "import sys\nfrom witness.cli.main import main\n"
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
        "starlette",
        "uvicorn",
        "sqlite3",
    }
    assert not loaded & heavy


def test_the_recognizer_starts_before_anything_heavy_is_imported(tmp_path):
    (tmp_path / "model.bin").write_bytes(b"none")
    code = (
        "import subprocess, sys\n"
        "class Popen(subprocess.Popen):\n"
        "    def __init__(self, command, *args, **kwargs):\n"
        "        if 'witness.recognition.gpus' in command:\n"
        "            return super().__init__(command, *args, **kwargs)\n"
        "        assert 'witness.recognition.whisper_cpp' in command\n"
        "        heavy = {'av', 'onnx', 'onnxruntime', 'scipy', 'soxr'} & set(sys.modules)\n"
        "        print('heavy:', sorted(heavy), file=sys.stderr)\n"
        "        raise SystemExit(0)\n"
        "subprocess.Popen = Popen\n"
        "from witness.cli.main import main\n"
        "main(sys.argv[1:])\n"
    )
    command = [sys.executable, "-c", code, "run", str(CALL), "--whisper", str(tmp_path / "model.bin")]
    command += ["--models", "builtin", "--offline", "--device", "cpu"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "heavy: []" in result.stderr
