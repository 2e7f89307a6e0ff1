"""build.sh and scripts/install-vulkan.sh: their plans, what they call missing, and going on after a stop."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import ROOT
from witness.doctor.machine import Machine

BUILD = ROOT / "build.sh"
VULKAN = ROOT / "scripts" / "install-vulkan.sh"
VOLUNTEER = ROOT / "scripts" / "volunteer_amd.sh"
PATCHES = ROOT / "patches"
BASH, GIT = shutil.which("bash") or "bash", shutil.which("git") or "git"

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the scripts are for Linux")

MIGRAPHX_PIN = "db302aebfbcdee1da1df64267a73a08299201599"
ORT_PIN = "058787ceead760166e3c50a0a4cba8a833a6f53f"

STUBS = {
    "git": f"""
case "$*" in
    clone*) for last; do :; done; mkdir -p "$last/.git" ;;
    *migraphx*rev-parse*) echo {MIGRAPHX_PIN} ;;
    *onnxruntime*rev-parse*) echo {ORT_PIN} ;;
    *apply\\ --reverse*) exit 1 ;;
esac""",
    "cmake": """
case "$*" in
    --version) echo "cmake version 3.31.2" ;;
    --build*) [ ! -e "$STUBS/broken" ] ;;
esac""",
    "ninja": "",
    "python": """
case "$*" in
    *build.py*) mkdir -p "$BUILD_DIR/onnxruntime-build/Release/dist"
        touch "$BUILD_DIR/onnxruntime-build/Release/dist/onnxruntime_migraphx-1.24.2-cp312.whl" ;;
esac""",
}
ROCM64 = [
    "usr/lib64/libamdhip64.so.6.4.60402",
    "usr/lib64/rocm/llvm/bin/clang++",
    "usr/include/sqlite3.h",
    "usr/include/google/protobuf/message.h",
    "usr/include/half.hpp",
    "usr/lib64/cmake/rocm/ROCMConfig.cmake",
    "usr/lib64/cmake/hip/hip-config.cmake",
    "usr/lib64/cmake/hiprtc/hiprtc-config.cmake",
    "usr/lib64/cmake/miopen/miopen-config.cmake",
    "usr/lib64/cmake/rocblas/rocblas-config.cmake",
    "usr/lib64/cmake/hipblas/hipblas-config.cmake",
    "usr/lib64/cmake/hipblaslt/hipblaslt-config.cmake",
    "usr/share/cmake/nlohmann_json/nlohmann_jsonConfig.cmake",
    "usr/lib64/cmake/msgpack-cxx/msgpack-cxx-config.cmake",
]
ROCM7 = [
    "opt/rocm/lib/libamdhip64.so.7.2.70204",
    "opt/rocm/lib/libmigraphx_c.so.3.0.70204",
    "opt/rocm/lib/migraphx/lib/libmigraphx.so.2015000.0.70204",
    "opt/rocm/lib/migraphx/lib/libmigraphx_gpu.so.2015000.0.70204",
]
ROCM101 = [
    "opt/rocm/core-10.1/lib/libamdhip64.so.7.16.26385",
    "opt/rocm/extras-10/lib/libmigraphx_c.so.3.0",
    "opt/rocm/extras-10/lib/migraphx/lib/libmigraphx.so.2018000.0",
    "opt/rocm/extras-10/lib/migraphx/lib/libmigraphx_gpu.so.2018000.0",
]
UBUNTU_HAS = [name.replace("opt/rocm/lib", "usr/lib/x86_64-linux-gnu") for name in ROCM7]


class Box:
    """A machine in a folder, with programs that only write down how they were called."""

    def __init__(self, home: Path, files: list[str], release: str) -> None:
        self.home, self.stubs = home, home / "stubs"
        self.stubs.mkdir(parents=True)
        for name, body in STUBS.items():
            path = self.stubs / name
            path.write_text(f'#!/bin/bash\necho "{name} $*" >> "$STUBS/calls"\n{body}\n')
            path.chmod(0o755)
        (home / "root").mkdir()
        for name in [*files, "etc/os-release"]:
            path = home / "root" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch(mode=0o755)
        (home / "root/etc/os-release").write_text(release)

    def run(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        environment = {
            "PATH": f"{self.stubs}:/usr/bin:/bin",
            "HOME": str(self.home),
            "STUBS": str(self.stubs),
            "PYTHON": str(self.stubs / "python"),
            "WITNESS_ROOT": str(self.home / "root"),
            "BUILD_DIR": str(self.home / "build"),
            "INSTALL_PREFIX": str(self.home / "prefix"),
            "JOBS": "3",
            "GFX_TARGET": "gfx1201",
            **variables,
        }
        return subprocess.run(
            [BASH, str(BUILD), *arguments], env=environment, capture_output=True, text=True, timeout=60
        )

    def calls(self) -> list[str]:
        """What was called since the last time."""
        path = self.stubs / "calls"
        lines = path.read_text().splitlines() if path.exists() else []
        path.unlink(missing_ok=True)
        return lines


@pytest.fixture
def fedora43(tmp_path):
    return Box(tmp_path, ROCM64, "ID=fedora\nVERSION_ID=43\n")


@pytest.mark.parametrize("script", [BUILD, VULKAN, VOLUNTEER], ids=lambda path: path.name)
def test_scripts_are_sound(script):
    assert os.access(script, os.X_OK)
    subprocess.run([BASH, "-n", str(script)], check=True)
    if not shutil.which("shellcheck", path=str(Path(sys.executable).parent)):
        pytest.skip("shellcheck is not installed (it comes with .[dev])")
    subprocess.run([str(Path(sys.executable).parent / "shellcheck"), str(script)], check=True)


@pytest.mark.parametrize("script", [BUILD, VULKAN, VOLUNTEER], ids=lambda path: path.name)
def test_help_and_wrong_usage(script):
    done = subprocess.run([str(script), "--help"], capture_output=True, text=True, check=True)
    assert "--dry-run" in done.stdout
    wrong = subprocess.run([str(script), "--nonsense"], capture_output=True, text=True)
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert "--nonsense" in wrong.stderr


def test_the_plan_of_a_build_from_source(fedora43):
    done = fedora43.run("--dry-run")
    assert done.returncode == 0, done.stderr
    assert "# missing" not in done.stdout
    plan = done.stdout
    steps = [
        "--branch rocm-6.4.2 https://github.com/ROCm/AMDMIGraphX.git",
        "04-migraphx-mlir-guard.patch",
        "-DCMAKE_CXX_COMPILER=/usr/lib64/rocm/llvm/bin/clang++",
        "--build ",
        "--branch v1.24.2 https://github.com/microsoft/onnxruntime.git",
        "07-ort-fp4x2.patch",
        "08-ort-bf16.patch",
        "--use_migraphx",
        "-m witness doctor",
    ]
    places = [plan.index(step) for step in steps]
    assert places == sorted(places)
    for setting in ("-DGPU_TARGETS=gfx1201", "-DMIGRAPHX_ENABLE_MLIR=OFF", "--parallel 3", "hipcc"):
        assert (setting in plan) == (setting != "hipcc")
    assert not (fedora43.home / "build").exists()
    assert [call.split()[:2] for call in fedora43.calls()] == [["cmake", "--version"], ["python", "-c"]]


def test_a_build_goes_on_where_it_stopped(fedora43):
    (fedora43.stubs / "broken").touch()
    stopped = fedora43.run("source")
    assert stopped.returncode == 3
    assert "MIGraphX does not compile" in stopped.stderr
    assert any(call.startswith("git clone") for call in fedora43.calls())

    (fedora43.stubs / "broken").unlink()
    done = fedora43.run("source")
    assert done.returncode == 0, done.stderr
    calls = fedora43.calls()
    assert [call for call in calls if call.startswith("git clone")] == [
        f"git clone --quiet --depth 1 --recurse-submodules --shallow-submodules --branch v1.24.2 "
        f"https://github.com/microsoft/onnxruntime.git {fedora43.home}/build/onnxruntime.part"
    ]
    wheel = "onnxruntime_migraphx-1.24.2-cp312.whl"
    assert any("pip install" in call and wheel in call for call in calls)
    assert calls[-1] == "python -m witness doctor"

    again = fedora43.run("source")
    assert again.returncode == 0
    assert not any("cmake --build" in call or "build.py" in call for call in fedora43.calls())

    other = fedora43.run("source", GFX_TARGET="gfx1100")
    assert other.returncode == 0
    calls = fedora43.calls()
    assert any("-DGPU_TARGETS=gfx1100" in call for call in calls)
    assert not any("build.py" in call for call in calls)  # onnxruntime has no code for the card


def test_another_commit_than_the_pinned_is_refused(fedora43):
    stub = fedora43.stubs / "git"
    stub.write_text(stub.read_text().replace(MIGRAPHX_PIN, "0" * 40))
    done = fedora43.run("source")
    assert done.returncode == 3
    assert MIGRAPHX_PIN in done.stderr


def test_patches_that_are_not_needed_are_left_out(fedora43):
    (fedora43.home / "root/usr/lib64/cmake/rocMLIR").mkdir(parents=True)
    (fedora43.home / "root/usr/lib64/cmake/rocMLIR/rocMLIRConfig.cmake").touch()
    header = fedora43.home / "prefix/include/migraphx/migraphx.h"
    header.parent.mkdir(parents=True)
    header.write_text("migraphx_quantize_bf16 migraphx_shape_fp4x2_type")
    plan = fedora43.run("--dry-run").stdout
    assert ".patch" not in plan
    assert "-DMIGRAPHX_ENABLE_MLIR=ON" in plan


@pytest.mark.parametrize(
    ("lost", "release", "cure"),
    [
        ("usr/lib64/cmake/miopen", "ID=fedora\n", "sudo dnf install miopen-devel"),
        ("usr/lib64/cmake/miopen", "ID=ubuntu\nID_LIKE=debian\n", "sudo apt install miopen-hip-dev"),
        ("usr/lib64/cmake/miopen", "ID=arch\n", "sudo pacman -S miopen-hip"),
        ("usr/lib64/rocm", "ID=fedora\n", "sudo dnf install rocm-clang-devel"),
        ("usr/include/half.hpp", "ID=fedora\n", "sudo dnf install half-devel"),
        ("usr/share/cmake/nlohmann_json", "ID=fedora\n", "sudo dnf install json-devel"),
    ],
)
def test_what_is_missing_is_named_before_anything_is_done(tmp_path, lost, release, cure):
    files = [name for name in ROCM64 if not name.startswith(lost)]
    box = Box(tmp_path, files, release)
    done = box.run("source")
    assert done.returncode == 1
    assert cure in done.stderr
    assert not any(call.startswith("git") for call in box.calls())
    assert f"# missing: no {done.stderr.split('build.sh: no ')[1].strip()}" in box.run("--dry-run").stdout


@pytest.mark.parametrize("files", [ROCM7, ROCM101, UBUNTU_HAS], ids=["7.2", "10.1", "of the distribution"])
def test_rocm_7_and_10_take_the_wheel(tmp_path, files):
    box = Box(tmp_path, files, "ID=ubuntu\n")
    done = box.run()
    assert done.returncode == 0, done.stderr
    assert box.calls() == [
        "python -m pip uninstall --yes onnxruntime onnxruntime-migraphx",
        "python -m pip install --no-deps onnxruntime-migraphx>=1.24.2,!=1.24.4,!=1.25.0",
        "python -m witness doctor",
    ]


@pytest.mark.parametrize(
    ("files", "release", "cure"),
    [
        ([], "ID=ubuntu\nVERSION_ID=24.04\n", "sudo apt install amdrocm10-migraphx"),
        ([], "ID=ubuntu\nVERSION_ID=26.10\n", "sudo apt install libmigraphx-c3"),
        ([], "ID=debian\nVERSION_ID=13\n", "sudo apt install amdrocm10-migraphx"),
        (ROCM7[:3], "ID=debian\n", "no GPU part"),
        ([*ROCM7[:2], ROCM7[2].replace("2015", "2013"), ROCM7[3]], "ID=fedora\n", "older than 2.14"),
        ([], "ID=fedora\n", "sudo dnf install migraphx"),
        (ROCM7[:1], "ID=arch\n", "sudo pacman -S migraphx"),
        (["opt/rocm/lib/libamdhip64.so.8.0.1", ROCM7[1]], "ID=arch\n", "libamdhip64.so.7"),
        ([], "ID=void\n", "install migraphx"),
    ],
)
def test_without_rocm_or_migraphx(tmp_path, files, release, cure):
    box = Box(tmp_path, files, release)
    done = box.run()
    assert done.returncode == 1
    assert cure in done.stderr
    assert box.calls() == []


HIP = "libamdhip64.so"
OF_AMD = {
    "none": [],
    "7.1": [f"opt/rocm-7.1.1/lib/{HIP}.7.1.70101"],
    "7.2": [f"opt/rocm/lib/{HIP}.7.2.70204"],
    "7.14": [f"opt/rocm/core-7.14/lib/{HIP}.7.14.26200"],
    "10.0": [f"opt/rocm/core-10.0/lib/{HIP}.7.15.26300"],
    "10.1": [f"opt/rocm/core-10.1/lib/{HIP}.7.16.26385"],
    "10.2": [f"opt/rocm/core-10.1/lib/{HIP}.7.16.26385", f"opt/rocm/core-10.2/lib/{HIP}.7.17.27000"],
}
TEN = "sudo apt install amdrocm10-migraphx"
LATER = "add AMD's package source of MIGraphX (docs/amd-gpu.md), then sudo apt update &&"
OF_UBUNTU = {
    "none": f"add AMD's two package sources (docs/amd-gpu.md), then {TEN}",
    "7.1": "sudo apt update && sudo apt install migraphx",
    "7.2": "sudo apt update && sudo apt install migraphx",
    "7.14": "download amdrocm-migraphx_2.16.0-3.py312_amd64.deb from AMD",
    "10.0": f"{LATER} sudo apt install amdrocm-migraphx",
    "10.1": f"{LATER} {TEN}",
    "10.2": f"{LATER} {TEN}",
}


@pytest.mark.parametrize(
    ("release", "ways"),
    [
        ('ID=ubuntu\nVERSION_ID="24.04"\n', OF_UBUNTU),
        ("ID=debian\nVERSION_ID=13\n", OF_UBUNTU),
        ("ID=linuxmint\nID_LIKE='ubuntu debian'\n", OF_UBUNTU),
        (
            "ID=ubuntu\nVERSION_ID=26.10\n",
            {**OF_UBUNTU, "none": "sudo apt install libmigraphx-c3 (from universe)"},
        ),
        ("ID=fedora\nVERSION_ID=44\n", dict.fromkeys(OF_AMD, "sudo dnf install migraphx")),
        (
            "ID=rocky\nVERSION_ID=10.1\nID_LIKE='rhel centos fedora'\n",
            dict.fromkeys(OF_AMD, "sudo dnf install migraphx (Fedora 44 or newer, or EPEL 10"),
        ),
        ("ID=arch\n", dict.fromkeys(OF_AMD, "sudo pacman -S migraphx")),
    ],
    ids=["ubuntu 24.04", "debian 13", "mint", "ubuntu 26.10", "fedora 44", "rocky 10", "arch"],
)
def test_the_way_to_migraphx_for_each_distribution_and_rocm(tmp_path, release, ways):
    """From recorded trees; the doctor and build.sh say the same."""
    assert ways.keys() == OF_AMD.keys()
    for rocm, way in ways.items():
        box = Box(tmp_path / rocm, OF_AMD[rocm], release)
        machine = Machine(root=box.home / "root", environment={}, system="linux")
        assert way in machine.install_rocm
        plan = box.run("--dry-run", "packages")
        assert plan.returncode == 0, plan.stderr
        assert (
            f"# missing: no MIGraphX (libmigraphx_c.so.3); fix: {machine.install_rocm.split(' (Fedora')[0]}"
            in plan.stdout
        )


def test_a_volunteer_installs_and_reports(tmp_path):
    box = Box(tmp_path, ROCM7, "ID=ubuntu\n")
    environment = {"PATH": f"{box.stubs}:/usr/bin:/bin", "PYTHON": "python", "VENV": str(tmp_path / "venv")}
    environment |= {"STUBS": str(box.stubs), "HOME": str(tmp_path)}
    done = subprocess.run(
        [BASH, str(VOLUNTEER), "--dry-run", "--repeats", "3"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    python = tmp_path / "venv/bin/python"
    here = str(ROOT).replace(" ", "\\ ")  # as a shell takes it
    assert [line.strip() for line in done.stdout.splitlines()] == [
        f"python -m venv {tmp_path}/venv",
        f"{python} -m pip install --quiet {here}\\[words\\]",
        f"env PYTHON={python} {here}/build.sh packages",
        f"{python} {here}/benchmarks/volunteer.py --repeats 3",
    ]
    environment["PYTHON"] = "no-such-python"
    done = subprocess.run([BASH, str(VOLUNTEER)], env=environment, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (1, "")
    assert "fix: install Python" in done.stderr


@pytest.mark.slow
def test_a_report_without_a_card_says_what_failed(tmp_path, monkeypatch, capsys):
    """It is worth having, too, and holds no path of the user's."""
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    import volunteer

    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(volunteer, "SECONDS", 40)  # of the three minutes
    options = ["--models", "builtin", "--only", "status", "--only", "compare", "--limit", "120"]
    monkeypatch.setattr(sys, "argv", ["volunteer.py", *options])
    volunteer.main()
    report = json.loads(capsys.readouterr().out)
    assert report["schema"] == "witness-volunteer/1"
    assert report["cards"] == report["status"]["result"]["cards"] == []
    assert report["compare"]["migraphx"]["failed"]["code"] == 6
    assert "no AMD GPU is visible" in report["compare"]["migraphx"]["failed"]["said"]
    assert report["compare"]["cpu"]["turns"] > 10
    assert report["compare"]["cpu"]["command"][1] == "RECORDING"
    assert "same_turns" not in report["compare"]


def test_amds_own_wheel_is_a_choice(tmp_path):
    box = Box(tmp_path, ROCM7, "ID=ubuntu\n")
    assert box.run(WHEEL="https://example.org/onnxruntime_migraphx-1.23.2.whl").returncode == 0
    assert (
        "python -m pip install --no-deps https://example.org/onnxruntime_migraphx-1.23.2.whl" in box.calls()
    )


def test_the_best_card_is_asked_for_in_words_that_python_knows():
    """What fails there is silent: without a card there is nothing to say."""
    (question,) = re.findall(r"-c '(from witness.*?)'", BUILD.read_text())
    done = subprocess.run([sys.executable, "-c", question], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_patches_are_well_formed_and_in_the_table():
    table = (PATCHES / "README.md").read_text()
    for number in range(1, 9):
        assert re.search(rf"^\| 0{number} \|", table, re.M)
    for path in PATCHES.glob("*.patch"):
        assert f"({path.name})" in table
        assert path.stem in BUILD.read_text()
        done = subprocess.run([GIT, "apply", "--numstat", str(path)], capture_output=True, text=True, cwd="/")
        added, removed, _ = done.stdout.split()
        assert 0 < int(added) + int(removed) < 10


def vulkan(tmp_path, header: str, **variables: str) -> subprocess.CompletedProcess[str]:
    for name in ("g++", "glslc"):
        (tmp_path / name).write_text("#!/bin/sh\ncat > /dev/null\n")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "vulkan").mkdir()
    (tmp_path / "vulkan" / "vulkan.hpp").write_text(header)
    environment = {
        **os.environ,
        "PATH": f"{tmp_path}:/usr/bin:/bin",
        "VULKAN_HEADERS": str(tmp_path),
        **variables,
    }
    return subprocess.run(
        [BASH, str(VULKAN), "--dry-run", sys.executable], env=environment, capture_output=True, text=True
    )


def test_the_plan_of_a_build_for_vulkan(tmp_path):
    done = vulkan(tmp_path, "struct LayerSettingEXT", MY_OWN="hunter2")
    if "no Vulkan loader" in done.stderr:
        pytest.skip("libvulkan is not installed")
    assert done.returncode == 0, done.stderr
    command = done.stdout.splitlines()[-1]
    for part in ("GGML_VULKAN=1", r"CMAKE_INSTALL_RPATH=\$ORIGIN", "CMAKE_BUILD_WITH_INSTALL_RPATH=ON"):
        assert f" {part} " in command
    assert f"Vulkan_INCLUDE_DIR={tmp_path}" in command
    assert "--no-cache-dir" in command
    assert "hunter2" not in command  # setup.py would hand it to cmake


def test_headers_that_are_too_old_for_vulkan(tmp_path):
    done = vulkan(tmp_path, "struct LayerSetting")
    assert done.returncode == 1
    assert "too old" in done.stderr
    assert "VULKAN_HEADERS=" in done.stderr
