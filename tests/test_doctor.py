"""The doctor on machines that are folders: what it finds, what it calls broken, what it keeps back."""

import getpass
import json
import os
import shutil
import struct
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from conftest import DATA
from witness._version import install
from witness.cli.main import cli
from witness.doctor import checks, probes
from witness.doctor.machine import Check, Machine
from witness.gpu import rocm, strict, versions
from witness.models import catalogue, recognizers, session, store
from witness.options import Recognizer
from witness.recognition import gpus

GPUS = DATA / "gpus"
GOOD = {
    "files": {"libamdhip64.so.7": "/opt/rocm/lib/libamdhip64.so.7"},
    "missing": [],
    "lacking": [],
    "devices": 1,
    "hip": 0,
}
NEEDED = ["libamdhip64.so.7", "libmigraphx_c.so.3"]
BAD = {"files": {}, "missing": NEEDED, "lacking": [], "devices": None, "hip": None}


@pytest.fixture(scope="module", autouse=True)
def found_once():
    """What this machine has, beneath all those that are folders, is found out for the first one only."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session, "Model", cache(session.Model))
        patch.setattr(gpus, "devices", cache(gpus.devices))
        yield


def answers(provider: dict | None = None, **others: dict):
    """Probes of another machine."""
    table = {"vulkan": {"error": "libvulkan.so.1: cannot open shared object file"}, "whisper": {"log": []}}
    table["ctranslate2"] = {"types": ["float32", "int8"]}
    table |= {"provider": BAD if provider is None else provider, **others}
    return lambda name, *_: table[name]


def machine(root: Path, **settings) -> Machine:
    settings = {"environment": {}, "system": "linux", "here": Path("/"), "ask": answers(), **settings}
    settings = {"wheel": "1.27.1", "wheel_page": "", "plugin": None, "glibc": "2.42", **settings}
    return Machine(root=root, **settings)


def found(checks, name: str) -> list[Check]:
    return [check for check in checks if check.name == name]


def one(checks, name: str) -> Check:
    (check,) = found(checks, name)
    return check


@pytest.fixture
def copy(tmp_path):
    """A machine of tests/data/gpus that may be changed."""

    def make(name: str, **files: str) -> Path:
        shutil.copytree(GPUS / name, tmp_path, dirs_exist_ok=True)
        for path, text in files.items():
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_text(text)
        return tmp_path

    return make


ROCM7 = {
    "opt/rocm-7.2.4/lib/libamdhip64.so.7.2.70204": "",
    "opt/rocm-7.2.4/lib/libmigraphx_c.so.3.0.70204": "",
    "opt/rocm-7.2.4/lib/migraphx/lib/libmigraphx.so.2015000.0.70204": "",
    "opt/rocm-7.2.4/lib/migraphx/lib/libmigraphx_gpu.so.2015000.0.70204": "",
}


@pytest.mark.parametrize(
    ("name", "broken"),
    [
        # With a card that AMD lists, the way to it is needed; without one it is not.
        ("rx9070", {"rocm", "migraphx", "provider"}),
        ("rx9070_igpu", {"rocm", "migraphx", "provider"}),
        ("strix_halo", {"rocm", "migraphx", "provider"}),
        ("two_cards", {"rocm", "migraphx", "provider"}),
        ("rx5700", set()),
        ("no_amd", set()),
    ],
)
def test_what_is_broken_without_rocm(name, broken):
    report = checks.examine(machine(GPUS / name))
    assert {check.name for check in report if check.ok is False} == broken
    assert checks.healthy(report) == (not broken)
    assert all(check.fix for check in report if check.ok is False)


@pytest.mark.parametrize("name", ["rx9070", "rx9070_igpu", "strix_halo", "two_cards"])
def test_all_is_well_with_rocm_7(copy, name):
    report = checks.examine(machine(copy(name, **ROCM7), ask=answers(GOOD)))
    assert checks.healthy(report)
    assert one(report, "rocm").finding == "HIP 7 (libamdhip64.so.7.2.70204)"
    assert one(report, "migraphx").finding == "MIGraphX 2.15.0"
    assert "HIP sees 1 devices" in one(report, "provider").finding


def test_each_card_is_described():
    integrated, discrete = found(checks.examine(machine(GPUS / "rx9070_igpu")), "card")
    assert integrated.ok is None
    assert "Radeon Graphics (gfx1036)" in integrated.finding
    assert "integrated, not on AMD's list" in integrated.finding
    assert discrete.ok
    assert discrete.finding == (
        "1: Radeon RX 9070 (gfx1201), 14.8 of 15.9 GiB free, on AMD's list for MIGraphX; "
        "used unless --gpu says otherwise"
    )


def test_a_hidden_card_is_said_to_be():
    report = checks.examine(machine(GPUS / "two_cards", environment={"HIP_VISIBLE_DEVICES": "1"}))
    assert [check.finding.split(":")[0] for check in found(report, "card")] == ["hidden", "0"]
    assert one(report, "variable").finding == "HIP_VISIBLE_DEVICES=1"


@pytest.mark.parametrize(("shape", "ok"), [((1280, 4), True), ((1280, 4000), None)])
def test_room_for_both_engines(tmp_path, monkeypatch, shape, ok):
    width, layers = shape
    path = tmp_path / "model.bin"
    path.write_bytes(
        struct.pack("<12i", 0x67676D6C, 51866, 1500, width, 20, 32, 448, width, 20, layers, 128, 8)
    )
    entry = next(entry for entry in catalogue.TABLE if entry.name == "large-v3-turbo-q5_0")
    monkeypatch.setattr(store, "list_models", lambda **_: (store.OnDisk(entry, str(path), "present"),))
    check = one(checks.examine(machine(GPUS / "rx9070")), "memory")
    assert check.ok is ok
    assert "Radeon RX 9070 has" in check.finding


@pytest.mark.parametrize(
    ("rocm", "ok", "says"),
    [
        (None, True, "on AMD's list for MIGraphX"),
        ("10.2", True, "on AMD's list for MIGraphX"),
        ("10.1", None, "not on AMD's list for ROCm 10.1 but on that for 10.2"),
    ],
)
def test_a_780m_is_on_the_list_of_rocm_10_2(copy, rocm, ok, says):
    root = copy("strix_halo", **({} if rocm is None else {f"opt/rocm/core-{rocm}/lib/libamdhip64.so.7": ""}))
    for node in (root / "sys/class/kfd/kfd/topology/nodes").iterdir():
        path = node / "properties"
        path.write_text(path.read_text().replace("gfx_target_version 110501", "gfx_target_version 110003"))
    report = checks.examine(machine(root))
    check = one(report, "card")
    assert "gfx1103" in check.finding
    assert check.finding.endswith(says)
    assert check.ok is ok
    assert (one(report, "migraphx").ok is False) == (ok is True)


def test_a_card_that_is_hidden_is_not_needed():
    assert checks.healthy(checks.examine(machine(GPUS / "rx9070", environment={"ROCR_VISIBLE_DEVICES": ""})))


def test_rocm_6_is_not_enough(copy):
    root = copy("rx9070", **{"usr/lib64/libamdhip64.so.6.4.60402": "", "etc/os-release": "ID=fedora\n"})
    check = one(checks.examine(machine(root)), "rocm")
    assert check.ok is False
    assert check.finding == "HIP 6 (libamdhip64.so.6.4.60402)"
    assert "dnf install migraphx" in check.fix
    assert "build.sh" in check.fix
    assert "libamdhip64.so.7" in check.fix


@pytest.mark.parametrize(
    ("release", "fix"),
    [
        ('ID=ubuntu\nVERSION_ID="24.04"\n', "sudo apt install amdrocm10-migraphx"),
        ('ID=ubuntu\nVERSION_ID="26.10"\n', "sudo apt install libmigraphx-c3"),
        ("ID=ubuntu\n", "sudo apt install amdrocm10-migraphx"),
        ("ID=linuxmint\nVERSION_ID=27\nID_LIKE='ubuntu debian'\n", "sudo apt install amdrocm10-migraphx"),
        ('ID=debian\nVERSION_ID="13"\n', "sudo apt install amdrocm10-migraphx"),
        ("ID=arch\n", "pacman -S migraphx"),
        ("ID=nobara\nID_LIKE=fedora\n", "dnf install migraphx"),
        ("ID=void\n", "ROCm 7.1 or newer"),
    ],
)
def test_the_fix_names_the_package_of_the_distribution(copy, release, fix):
    root = copy("rx9070", **{"etc/os-release": release})
    assert fix in one(checks.examine(machine(root)), "provider").fix


def test_rocm_6_is_enough_for_what_was_built_with_it(copy):
    """build.sh puts MIGraphX where only the provider that it built looks."""
    prefix = "/somewhere/witness-rocm/lib"
    files = {
        "libamdhip64.so.6": "/usr/lib64/libamdhip64.so.6",
        "libmigraphx_c.so.3": f"{prefix}/libmigraphx_c.so.3",
        "libmigraphx.so.2012000.0": f"{prefix}/migraphx/lib/libmigraphx.so.2012000.0",
    }
    root = copy("rx9070", **{"usr/lib64/libamdhip64.so.6.4.60402": ""})
    # It made the wheel, too: what is known of those on PyPI says nothing about it.
    report = checks.examine(machine(root, wheel="1.24.2", ask=answers({**GOOD, "files": files})))
    assert checks.healthy(report)
    assert not found(report, "wheel")
    assert not found(report, "combination")
    assert one(report, "rocm").finding == "HIP 6 (libamdhip64.so.6.4.60402)"
    assert one(report, "migraphx").finding == "MIGraphX 2.12.0"


# Where AMD's packages put the two libraries (7.14 is taken to be as 10.0); before, both were in opt/rocm/lib.
PLACES = {
    "7.14": ("opt/rocm/core-7.14/lib", "opt/rocm/lib"),
    "10.0": ("opt/rocm/core-10.0/lib", "opt/rocm/lib"),
    "10.1": ("opt/rocm/core-10.1/lib", "opt/rocm/extras-10/lib"),
    "10.2": ("opt/rocm/core-10.2/lib", "opt/rocm/extras-10/lib"),
}


def installed(rocm: str, migraphx: tuple[int, int], hip: int) -> dict[str, str]:
    """The files of a release of ROCm."""
    core, extras = PLACES.get(rocm, ("opt/rocm/lib", "opt/rocm/lib"))
    number = f"{migraphx[0]}{migraphx[1]:03d}000.0"
    names = [f"{core}/libamdhip64.so.{hip}", f"{extras}/libmigraphx_c.so.3"]
    names += [f"{extras}/migraphx/lib/libmigraphx{part}.so.{number}" for part in ("", "_gpu")]
    return dict.fromkeys(names, "")


@pytest.mark.parametrize("release", versions.RELEASES, ids=lambda release: release.rocm)
def test_each_release_of_rocm_with_the_wheel(copy, release):
    root = copy("rx9070", **installed(release.rocm, release.migraphx, release.hip))
    found_both = {**GOOD, "files": {name: f"/opt/rocm/lib/{name}" for name in NEEDED}}
    answer = found_both if release.hip == versions.HIP else BAD
    report = checks.examine(machine(root, ask=answers(answer)))
    number = ".".join(map(str, release.migraphx))
    assert one(report, "migraphx").finding == f"MIGraphX {number}.0"
    assert one(report, "rocm").ok is (release.hip == versions.HIP)
    if release.hip != versions.HIP:
        assert not found(report, "combination")
        return
    check = one(report, "combination")
    assert f"onnxruntime-migraphx 1.27.1 with MIGraphX {number} of ROCm {release.rocm}: " in check.finding
    assert checks.healthy(report) == (release.fault is None)
    if release.fault:
        assert check.ok is False
        assert release.fault in check.finding
        assert "ROCm 7.1 or newer" in check.fix
    else:
        assert check.ok is None  # which is not "it works"
        assert ("not tried on a card" in check.finding) == (release.rocm != "10.2")
        assert ("names of their libraries" in check.finding) == (release.rocm in {"10.0", "10.1"})
        assert ("not compared" in check.finding) == (release.rocm == "10.2")


@pytest.mark.parametrize(
    ("wheel", "page", "who"),
    [
        ("1.27.1", "https://onnxruntime.ai", "of unclear origin: its metadata names Microsoft"),
        ("1.24.2", "https://github.com/Looong01/onnxruntime-rocm-build", "by a private builder"),
        ("1.23.2", "", "is AMD's, or of unknown origin"),
        ("1.23.2+rocm7.14.1", "", "is AMD's"),
        ("1.23.1", "", "is AMD's"),
        ("2.0.0", "https://onnxruntime.ai", "is of unknown origin"),
    ],
)
def test_who_made_the_wheel(wheel, page, who):
    report = checks.examine(machine(GPUS / "rx9070", wheel=wheel, wheel_page=page, glibc="2.36"))
    check = one(report, "origin")
    assert check.ok is None
    assert check.finding.startswith(f"onnxruntime-migraphx {wheel} is ")
    assert who in check.finding
    assert not found(checks.examine(machine(GPUS / "no_amd", wheel=wheel, wheel_page=page)), "origin")


def test_amds_plugin_is_the_provider(copy, monkeypatch):
    monkeypatch.setattr(rocm, "plugin_library", lambda: Path("/nowhere/libmigraphx-ep.so"))
    monkeypatch.setattr(strict, "records_assignment", lambda: True)
    asked = []

    def ask(probe, *arguments):
        asked.extend(arguments if probe == "provider" else ())
        return answers({**GOOD, "files": {name: f"/opt/rocm/lib/{name}" for name in NEEDED}})(probe)

    root = copy("rx9070", **installed("10.1", (2, 18), 7))
    settings = {"plugin": "1.0.0+rocm10.1.0", "ask": ask}
    report = checks.examine(machine(root, **settings))
    assert asked[0] == "/nowhere/libmigraphx-ep.so"
    assert "onnxruntime-ep-migraphx 1.0.0+rocm10.1.0 with MIGraphX 2.18" in one(report, "combination").finding
    assert "AMD's plug-in libmigraphx-ep.so" in found(report, "origin")[1].finding
    monkeypatch.setattr(strict, "records_assignment", lambda: False)
    check = one(checks.examine(machine(root, **settings)), "provider")
    assert check.ok is False
    assert check.finding == "AMD's plug-in needs onnxruntime 1.24 or newer"
    monkeypatch.setattr(rocm, "plugin_library", lambda: None)
    empty = found(checks.examine(machine(root, plugin="0.0.0", ask=ask)), "origin")[1]
    assert "0.0.0 is empty, as PyPI has it" in empty.finding
    assert "pip uninstall" in empty.fix


def test_a_newer_migraphx_was_not_compared(copy):
    report = checks.examine(machine(copy("rx9070", **installed("11.0", (2, 25), 7)), ask=answers(GOOD)))
    check = one(report, "combination")
    assert check.ok is None
    assert "MIGraphX 2.25: not compared; the newest that was is 2.19 of ROCm 10.2" in check.finding
    assert checks.healthy(report)


@pytest.mark.parametrize("rocm", ["7.14", "10.0", "10.1"])
def test_libraries_that_are_there_but_not_found(copy, rocm):
    """AMD's packages put them where neither the wheel nor the loader looks."""
    (release,) = (release for release in versions.RELEASES if release.rocm == rocm)
    core, extras = PLACES[rocm]
    check = one(checks.examine(machine(copy("rx9070", **installed(rocm, release.migraphx, 7)))), "provider")
    assert check.ok is False
    assert "cannot be found, although the files are there" in check.finding
    assert check.fix == f"export LD_LIBRARY_PATH=/{core}:/{extras}"


def test_libraries_that_are_too_old(copy):
    answer = {**BAD, "missing": [], "lacking": ["migraphx_quantize_bf16"]}
    check = one(checks.examine(machine(copy("rx9070", **ROCM7), ask=answers(answer))), "provider")
    assert check.ok is False
    assert check.finding == "migraphx_quantize_bf16 is in none of its libraries: they are too old"


def test_migraphx_without_its_gpu_part(copy):
    """Debian's package is built for CPUs."""
    names = ["libamdhip64.so.7", "libmigraphx_c.so.3", "libmigraphx.so.2014000.0"]
    files = {f"usr/lib/x86_64-linux-gnu/{name}": "" for name in names}
    root = copy("rx9070", **files, **{"etc/os-release": "ID=debian\n"})
    check = one(checks.examine(machine(root, ask=answers(GOOD))), "migraphx")
    assert check.ok is False
    assert "MIGraphX 2.14.0 without its GPU part" in check.finding
    assert "amdrocm10-migraphx" in check.fix


@pytest.mark.parametrize(("name", "provider"), [("rx9070", GOOD), ("no_amd", BAD)])
def test_a_wheel_that_this_glibc_refuses(name, provider):
    """On the CPU, too: it is onnxruntime's own library."""
    check = one(checks.examine(machine(GPUS / name, wheel="1.27.0", ask=answers(provider))), "wheel")
    assert check.ok is False
    assert "1.27.0 asks for an executable stack, which glibc 2.42 refuses" in check.finding
    assert "pip install 'onnxruntime-migraphx>=1.27.1'" in check.fix
    older = checks.examine(machine(GPUS / name, wheel="1.27.0", glibc="2.36", ask=answers(provider)))
    assert not found(older, "wheel")


def test_a_slow_migraphx_is_known(copy):
    root = copy("rx9070", **installed("10.0", (2, 17), 7))
    check = one(checks.examine(machine(root, ask=answers(GOOD))), "migraphx")
    assert (check.ok, check.finding) == (None, "MIGraphX 2.17.0")
    assert "5234" in check.fix


def test_rights_of_device_files(copy, monkeypatch):
    root = copy("rx9070", **ROCM7)
    allowed = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path).name != "kfd" and allowed(path, mode))
    report = checks.examine(machine(root, ask=answers(GOOD)))
    check = one(report, "/dev/kfd")
    assert check.ok is False
    assert check.fix.startswith("sudo usermod -aG ")
    assert one(report, "/dev/dri/renderD128").ok


def test_a_missing_device_file(copy):
    root = copy("rx9070", **ROCM7)
    (root / "dev/kfd").unlink()
    check = one(checks.examine(machine(root, ask=answers(GOOD))), "/dev/kfd")
    assert check.ok is False
    assert "--device /dev/kfd" in check.fix


def test_hip_without_devices(copy):
    none = {**GOOD, "devices": 0, "hip": 100}
    check = one(checks.examine(machine(copy("rx9070", **ROCM7), ask=answers(none))), "provider")
    assert check.ok is False
    assert "HIP sees no device (code 100)" in check.finding


def test_a_card_without_the_compute_driver(copy):
    root = copy("rx9070")
    shutil.rmtree(root / "sys/class/kfd")
    check = one(checks.examine(machine(root)), "cards")
    assert check.finding == "1 AMD cards, but none that can compute (no KFD)"


def test_libraries_in_the_current_folder_are_refused(tmp_path):
    (tmp_path / "libamdhip64.so.7").touch()
    check = one(checks.examine(machine(GPUS / "no_amd", here=tmp_path)), "current folder")
    assert check.ok is False
    assert "libamdhip64.so.7" in check.finding


def test_variables_that_change_what_runs_are_shown():
    environment = {
        "HSA_OVERRIDE_GFX_VERSION": "10.3.0",
        "ORT_MIGRAPHX_MODEL_CACHE_PATH": "/somewhere",
        "SECRET_TOKEN": "hunter2",
        "MIGRAPHX_TRACE_COMPILE": "1",
    }
    report = found(checks.examine(machine(GPUS / "no_amd", environment=environment)), "variable")
    assert [check.finding.split("=")[0] for check in report] == [
        "HSA_OVERRIDE_GFX_VERSION",
        "MIGRAPHX_TRACE_COMPILE",
        "ORT_MIGRAPHX_MODEL_CACHE_PATH",
    ]
    assert "RDNA 2" in report[0].fix


def test_vulkan_devices_are_listed():
    card = {"name": "AMD Radeon RX 9070 (RADV GFX1201)", "type": "discrete", "driver": "radv Mesa 25.2.1"}
    software = {"name": "llvmpipe", "type": "cpu", "driver": "llvmpipe Mesa 25.2.1"}
    ask = answers(vulkan={"devices": [card, software]})
    report = found(checks.examine(machine(GPUS / "rx9070", ask=ask)), "vulkan")
    assert [(check.ok, check.finding) for check in report] == [
        (True, "AMD Radeon RX 9070 (RADV GFX1201) (discrete), driver radv Mesa 25.2.1"),
        (None, "llvmpipe (cpu), driver llvmpipe Mesa 25.2.1"),
    ]


@pytest.mark.parametrize(
    ("code", "line"), [(-9, "no Vulkan driver starts"), (-1, "vkCreateInstance returned -1")]
)
def test_a_vulkan_loader_without_a_driver(monkeypatch, code, line):
    loader = SimpleNamespace(vkCreateInstance=lambda *_: code)
    monkeypatch.setattr(probes.ctypes, "CDLL", lambda _: loader)
    assert probes.vulkan() == {"error": line}


def test_a_part_that_fails_is_a_finding():
    def ask(*_):
        raise ZeroDivisionError("in a driver")

    report = checks.examine(machine(GPUS / "rx9070", ask=ask))
    assert one(report, "vulkan").finding == "ZeroDivisionError: in a driver"
    assert one(report, "python").ok


# --- Windows ---


@pytest.fixture
def windows(tmp_path):
    return lambda: checks.examine(machine(tmp_path, system="win32"))


def test_windows_bugs_are_known(windows):
    report = windows()
    crash, flash = found(report, "known bug")
    assert "#163" in crash.finding
    assert "#3806" in flash.finding
    assert not found(report, "rocm")


def test_windows_without_anything(windows):
    report = windows()
    assert one(report, "migraphx").finding.startswith("the voice model runs on the CPU")
    assert checks.healthy(report)


# --- this machine ---


def test_this_machine_as_text_and_json():
    result = CliRunner().invoke(cli, ["doctor", "--json"])
    document = json.loads(result.stdout)
    assert document["schema"] == "witness-doctor/1"
    assert {"python", "onnxruntime", "whisper.cpp", "decoding", "models"} <= {
        check["name"] for check in document["checks"]
    }
    assert document["ok"] == (result.exit_code == 0)
    text = CliRunner().invoke(cli, ["doctor"]).stdout
    assert all(check["name"] in text for check in document["checks"])


def test_words_without_a_model_are_missing(monkeypatch):
    """Neither broken, since a first run fetches one, nor all that is needed."""
    nothing = store.Words(
        "no model is here; base-q5_1 would be fetched", "witness models fetch base-q5_1", None
    )
    monkeypatch.setattr(store, "find_word_model", lambda **_: nothing)
    report = checks.examine(machine(GPUS / "no_amd"))
    assert checks.healthy(report)
    assert checks.to_text(report).splitlines()[-1] == (
        "nothing is broken, but this is missing: words; the hint says how to get it"
    )
    rows = json.loads(checks.to_json(report))["checks"]
    assert [row["name"] for row in rows if row["missing"]] == ["words"]
    monkeypatch.setattr(store, "find_word_model", lambda **_: replace(nothing, model=catalogue.TABLE[-1]))
    assert "missing" not in checks.to_text(checks.examine(machine(GPUS / "no_amd"))).splitlines()[-1]


def test_no_private_data(monkeypatch, tmp_path):
    home = tmp_path / "home" / "ada"
    home.mkdir(parents=True)
    monkeypatch.setattr(Path, "home", lambda: home)
    monkeypatch.setattr(getpass, "getuser", lambda: "ada")
    environment = {"LD_LIBRARY_PATH": f"{home}/rocm:/run/media/ada/disk", "WITNESS_CACHE": str(home)}
    text = checks.to_json(checks.examine(machine(GPUS / "no_amd", environment=environment)))
    assert "LD_LIBRARY_PATH=~/rocm:/run/media/USER/disk" in text
    assert "WITNESS_CACHE=~" in text
    assert not any(part in text for part in (str(home), "/ada"))


def test_exit_code_and_one_line_where_something_is_broken(monkeypatch):
    monkeypatch.setattr(checks, "PARTS", (lambda _: [Check("rocm", False, "none", "install it")],))
    result = CliRunner().invoke(cli, ["doctor"])
    assert isinstance(result.exception, Exception)
    assert str(result.exception) == "broken: rocm; the report says how to fix it"
    assert result.stdout == "NO  rocm  none\n          fix: install it\n"


@pytest.mark.parametrize(
    ("installed", "answer", "ok", "usual", "fix"),
    [
        (("whisper.cpp",), {}, None, "whisper.cpp", install("words")),
        (("whisper.cpp", "ctranslate2"), {"types": ["int8"]}, True, "ctranslate2", None),
        (("whisper.cpp", "ctranslate2"), {"error": "no AVX"}, False, "whisper.cpp", "--force-reinstall"),
    ],
)
def test_the_recognizers_that_can_run(monkeypatch, installed, answer, ok, usual, fix):
    monkeypatch.setattr(recognizers, "installed", lambda: tuple(Recognizer(name) for name in installed))
    report = checks.examine(machine(GPUS / "no_amd", ask=answers(ctranslate2=answer)))
    check = one(report, "ctranslate2")
    assert check.ok is ok
    assert (fix in check.fix) if fix else check.fix is None
    assert one(report, "recognizers").finding.endswith(f"--recognizer auto is {usual}")


# --- the children that load drivers' libraries ---


def test_whisper_is_asked_in_a_child():
    answer = probes.ask("whisper")
    assert "CPU" in answer["system"]


@pytest.mark.skipif(sys.platform != "linux", reason="the provider is for Linux")
def test_the_loader_names_what_is_missing():
    import onnxruntime

    library = Path(onnxruntime.__file__).parent / "capi" / "libonnxruntime_providers_migraphx.so"
    if not library.exists():
        pytest.skip("this onnxruntime has no MIGraphX")
    answer = probes.ask("provider", str(library))
    assert set(answer) == {"files", "missing", "lacking", "devices", "hip"}
    assert {*NEEDED} <= {*answer["files"], *answer["missing"]}
    assert answer["missing"] or answer["hip"] is not None


def test_a_probe_that_cannot_answer_says_so():
    assert "error" in probes.ask("provider", "/dev/null")
    assert probes.ask("nonsense")["error"] == "'nonsense'"
    assert probes.ask("vulkan", timeout=0.001)["error"] == "no answer within 0.001 s"
