"""Which ROCm, MIGraphX and wheel load together: the table, and the system's loader on libraries made for it.

The libraries have the names, symbol versions and functions of real ones, as far as these matter here.
"""

import os
import platform
import re
import shutil
import struct
import subprocess
import sys
import sysconfig
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from conftest import a_card
from witness.doctor import probes
from witness.errors import DeviceError
from witness.gpu import loader, rocm, versions
from witness.gpu.rocm import Provider

linux = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64", reason="the provider is for Linux on x86-64"
)

QUANTIZE = "migraphx_quantize_bf16"  # since MIGraphX 2.13
PROPERTIES = "hipGetDevicePropertiesR0600"  # since HIP 6
HIP_5 = {"hip_4.2": ["hipFree"]}
HIP_7 = {**HIP_5, "hip_6.0": [PROPERTIES]}


def build(path: Path, functions: list[str], *options: str) -> Path:
    """A library of functions that return 0, under the name that `path` has."""
    path.parent.mkdir(parents=True, exist_ok=True)
    code = "".join(f"int {name}(void) {{ return 0; }}\n" for name in functions)
    command = ["gcc", "-shared", "-fPIC", f"-Wl,-soname,{path.name}", *options, "-o", str(path), "-xc", "-"]
    subprocess.run(command, input=code, text=True, check=True)
    return path


def hip(path: Path, exported: dict[str, list[str]]) -> Path:
    """libamdhip64 with the functions of each symbol version."""
    script = path.parent / "hip.map"
    path.parent.mkdir(parents=True, exist_ok=True)
    script.write_text("".join(f"{name} {{ global: {'; '.join(of)}; }};\n" for name, of in exported.items()))
    functions = [name for of in exported.values() for name in of]
    return build(path, functions, f"-Wl,--version-script={script}")


def migraphx(path: Path, *functions: str) -> Path:
    return build(path, ["migraphx_load", *functions])


@pytest.fixture(scope="module")
def provider(tmp_path_factory) -> Path:
    """Stands for onnxruntime's provider: it was linked with ROCm 7, and looks in no folder of its own."""
    if sys.platform != "linux" or not shutil.which("gcc"):
        pytest.skip("the libraries are made by gcc on Linux")
    folder = tmp_path_factory.mktemp("linked")
    linked = [hip(folder / "libamdhip64.so.7", HIP_7), migraphx(folder / "libmigraphx_c.so.3", QUANTIZE)]
    used = ["hipFree", PROPERTIES, "migraphx_load", QUANTIZE, "Provider_GetHost"]
    path = folder / "libonnxruntime_providers_migraphx.so"
    code = "".join(f"int {name}(void);\n" for name in used)
    code += f"int use(void) {{ return {' + '.join(f'{name}()' for name in used)}; }}\n"
    command = ["gcc", "-shared", "-fPIC", "-Wl,--no-as-needed", "-o", str(path), "-xc", "-", "-xnone"]
    subprocess.run([*command, *map(str, linked)], input=code, text=True, check=True)
    return path


@pytest.fixture
def root(tmp_path, monkeypatch) -> Path:
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    return tmp_path


def traced(provider: Path, monkeypatch, *folders: Path) -> loader.LoaderTrace:
    """What the loader says if it looks in these folders, too."""
    monkeypatch.setenv("LD_LIBRARY_PATH", os.pathsep.join(map(str, folders)))
    return loader.trace(provider)


@linux
def test_rocm_7_and_10_have_what_the_provider_needs(provider, root, monkeypatch):
    library = hip(root / "opt/rocm/lib/libamdhip64.so.7", HIP_7)
    interface = migraphx(root / "opt/rocm/lib/libmigraphx_c.so.3", QUANTIZE)
    found = traced(provider, monkeypatch, library.parent)
    assert (found.missing, found.lacking) == ((), ())  # what onnxruntime itself brings is not counted
    assert (found.files["libamdhip64.so.7"], found.files["libmigraphx_c.so.3"]) == (library, interface)


@linux
def test_rocm_6_has_another_hip_library(provider, root, monkeypatch):
    folder = hip(root / "libamdhip64.so.6", HIP_7).parent
    migraphx(folder / "libmigraphx_c.so.3")
    assert traced(provider, monkeypatch, folder).missing == ("libamdhip64.so.7",)
    assert traced(provider, monkeypatch, folder).lacking == ()
    assert loader.search_path_fix(["libamdhip64.so.7"], root, {}) is None


@linux
@pytest.mark.parametrize(
    ("exported", "functions", "lacking"),
    [(HIP_7, [], QUANTIZE), (HIP_5, [QUANTIZE], PROPERTIES)],
    ids=["MIGraphX 2.12", "HIP 5"],
)
def test_libraries_that_are_too_old_under_the_right_name(
    provider, root, monkeypatch, exported, functions, lacking
):
    folder = hip(root / "libamdhip64.so.7", exported).parent
    migraphx(folder / "libmigraphx_c.so.3", *functions)
    assert traced(provider, monkeypatch, folder).lacking == (lacking,)
    assert probes.provider(str(provider))["lacking"] == (lacking,)
    monkeypatch.setattr(rocm, "find_provider", lambda: Provider(provider))
    with pytest.raises(DeviceError, match=f"{lacking} is in none of its libraries: they are too old"):
        rocm.find_stack(a_card())


@linux
@pytest.mark.parametrize(
    ("core", "extras"),
    [
        # Where AMD's packages put HIP and MIGraphX.
        ("opt/rocm/core-7.14/lib", "opt/rocm/lib"),
        ("opt/rocm/core-10.0/lib", "opt/rocm/lib"),
        ("opt/rocm/core-10.1/lib", "opt/rocm/extras-10/lib"),
    ],
)
def test_folders_in_which_the_loader_does_not_look(provider, root, monkeypatch, core, extras):
    hip(root / core / "libamdhip64.so.7", HIP_7)
    migraphx(root / extras / "libmigraphx_c.so.3", QUANTIZE)
    missing = loader.trace(provider).missing
    assert missing == ("libamdhip64.so.7", "libmigraphx_c.so.3")
    assert loader.search_path_fix(missing, root, {}) == f"export LD_LIBRARY_PATH=/{core}:/{extras}"
    kept = loader.search_path_fix(missing, root, {"LD_LIBRARY_PATH": "/mine"})
    assert kept == f"export LD_LIBRARY_PATH=/{core}:/{extras}:$LD_LIBRARY_PATH"
    assert traced(provider, monkeypatch, root / core, root / extras).missing == ()


@linux
def test_amds_wheels_of_rocm_10_are_found_among_pythons_packages(provider, root, monkeypatch):
    site = sysconfig.get_paths()["purelib"].lstrip("/")
    core, extras = f"{site}/_rocm_sdk_core/lib", f"{site}/migraphx_libs"
    hip(root / core / "libamdhip64.so.7", HIP_7)
    migraphx(root / extras / "libmigraphx_c.so.3", QUANTIZE)
    missing = loader.trace(provider).missing
    assert loader.search_path_fix(missing, root, {}) == f"export LD_LIBRARY_PATH=/{core}:/{extras}"
    assert traced(provider, monkeypatch, root / core, root / extras).missing == ()


@linux
@pytest.mark.usefixtures("root")
def test_the_error_names_the_way_to_libraries_that_are_there(provider, monkeypatch):
    monkeypatch.setattr(rocm, "find_provider", lambda: Provider(provider))
    with pytest.raises(
        DeviceError, match=r"libamdhip64.so.7 and libmigraphx_c.so.3 cannot be found; fix: install ROCm"
    ):
        rocm.find_stack(a_card())
    monkeypatch.setattr(
        loader, "search_path_fix", lambda *_: "export LD_LIBRARY_PATH=/opt/rocm/extras-10/lib"
    )
    with pytest.raises(
        DeviceError,
        match=r"cannot be found, although .*; fix: export LD_LIBRARY_PATH=/opt/rocm/extras-10/lib$",
    ):
        rocm.find_stack(a_card())


@linux
def test_a_library_in_the_current_folder_is_not_found(provider, root, monkeypatch):
    hip(root / "libamdhip64.so.7", HIP_7)
    monkeypatch.chdir(root)
    monkeypatch.setenv("LD_LIBRARY_PATH", ":/nowhere")  # the empty part is the current folder
    assert "libamdhip64.so.7" in loader.trace(provider).missing


@linux
def test_what_is_no_library_is_an_error():
    with pytest.raises(OSError, match="/dev/null"):
        loader.trace(Path("/dev/null"))


@pytest.mark.parametrize(
    ("wheel", "glibc", "fault"),
    [
        ("1.27.1", "2.36", None),
        ("1.27.1", "2.42", None),
        ("1.27.0", "2.40", None),
        ("1.27.0", "2.41", "asks for an executable stack, which glibc 2.41 refuses"),
        ("1.24.2", "2.42", "asks for an executable stack, which glibc 2.42 refuses"),
        ("1.25.0", "2.36", "needs glibc 2.38, and this is glibc 2.36"),
        ("1.24.4", "2.39", None),
        ("1.99.0", "2.42", None),
        (None, "2.42", None),
        ("1.25.0", "", None),
    ],
)
def test_wheels_and_glibc(wheel, glibc, fault):
    assert versions.wheel_fault(wheel, glibc) == fault


def test_releases_are_in_order_and_found():
    numbers = [release.migraphx for release in versions.RELEASES]
    assert numbers == sorted(set(numbers))
    for release in versions.RELEASES:
        assert versions.release_of((*release.migraphx, 3)) is release
    assert versions.release_of((2, 11, 0)) is None
    fit = [release.rocm for release in versions.RELEASES if release.fault is None]
    assert fit == ["7.1", "7.2", "7.14", "10.0", "10.1", "10.2"]


@pytest.mark.parametrize("table", ["versions.COMPARED", "versions.LISTED_ON"])
def test_the_tables_are_not_old(table):
    """AMD releases every few weeks: read the pages again, change what changed, and the date with it."""
    read = {"versions.COMPARED": versions.COMPARED, "versions.LISTED_ON": versions.LISTED_ON}[table]
    assert datetime.now(timezone.utc).date() - read < timedelta(days=183), f"{table} is from {read}"


def elf(path: Path) -> tuple[bool, tuple[int, int]]:
    """Of a 64-bit ELF file: whether it asks for an executable stack, and the newest glibc that it names."""
    data = path.read_bytes()
    (start,), (size, count) = struct.unpack_from("<Q", data, 32), struct.unpack_from("<HH", data, 54)
    headers = [struct.unpack_from("<II", data, start + index * size) for index in range(count)]
    flags = dict(headers)[0x6474E551]  # PT_GNU_STACK; bit 0 is "executable"
    named = re.findall(rb"\0GLIBC_(\d+)\.(\d+)(?:\.\d+)?(?=\0)", data)
    return bool(flags & 1), max((int(major), int(minor)) for major, minor in named)


@linux
def test_the_table_is_right_about_the_installed_wheel():
    import onnxruntime

    folder = Path(onnxruntime.__file__).parent / "capi"
    provider = folder / "libonnxruntime_providers_migraphx.so"
    known = [wheel for wheel in versions.WHEELS if wheel.version == onnxruntime.__version__]
    if not provider.exists() or not known:
        pytest.skip("this onnxruntime is none of the wheels in the table")
    stacks, glibcs = zip(*map(elf, [provider, *folder.glob("onnxruntime_pybind11_state*.so")]), strict=True)
    assert (any(stacks), max(glibcs)) == (known[0].executable_stack, known[0].glibc)
    assert {f"libamdhip64.so.{versions.HIP}", "libmigraphx_c.so.3"} <= {
        *loader.trace(provider).files,
        *loader.trace(provider).missing,
    }
