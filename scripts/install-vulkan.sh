#!/usr/bin/env bash
# Builds pywhispercpp (whisper.cpp) with Vulkan from its sources on PyPI into a Python environment, and proves
# that it imports afterwards.
#
#   scripts/install-vulkan.sh [--dry-run] [PYTHON]
#
# PYTHON is the interpreter of the environment; default: .venv/bin/python in this folder, else that of $VIRTUAL_ENV.
# VULKAN_HEADERS=DIR: a folder with vulkan/vulkan.hpp, where the distribution's is too old.
# JOBS=N: how many compilers run in parallel; each may need 2 GB (default: all cores).
# Exit codes: 0 done, 1 something is missing (and named), 2 wrong usage, 3 the build failed.
set -euo pipefail

die() { printf 'install-vulkan: %s\n' "$2" >&2; exit "$1"; }
say() { printf '==> %s\n' "$*" >&2; }

dry=
python=
for argument in "$@"; do
    case $argument in
        --dry-run) dry=1 ;;
        -h | --help) sed -n '2,11s/^# \{0,1\}//p' "$0"; exit 0 ;;
        -*) die 2 "unknown option $argument; --help lists the options" ;;
        *) python=$argument ;;
    esac
done
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
if [ -z "$python" ]; then
    if [ -x "$here/.venv/bin/python" ]; then
        python=$here/.venv/bin/python
    elif [ -n "${VIRTUAL_ENV:-}" ]; then
        python=$VIRTUAL_ENV/bin/python
    else
        die 2 "there is no .venv in this folder and no active environment; give the path of the environment's python"
    fi
fi
python=$(command -v "$python") || die 2 "$python was not found"
python=$(cd "$(dirname "$python")" && pwd)/$(basename "$python")  # not resolved: the link is the environment
"$python" -m pip --version > /dev/null 2>&1 || die 1 "$python has no pip; fix: $python -m ensurepip"

# --- requirements, and the packages that provide them ---

family=other
if [ -r "${OS_RELEASE:-/etc/os-release}" ]; then
    # shellcheck disable=SC1090,SC1091
    family=$(. "${OS_RELEASE:-/etc/os-release}" && printf '%s %s' "${ID:-}" "${ID_LIKE:-}")
fi
# Arguments: the names in Debian's, Fedora's and Arch's packages.
package() {
    case " $family " in
        *" debian "* | *" ubuntu "*) printf 'sudo apt install %s' "$1" ;;
        *" fedora "* | *" rhel "*) printf 'sudo dnf install %s' "$2" ;;
        *" arch "*) printf 'sudo pacman -S %s' "$3" ;;
        *) printf 'install %s' "$1" ;;
    esac
}

command -v g++ > /dev/null || command -v clang++ > /dev/null || die 1 "no C++ compiler; fix: $(package g++ gcc-c++ gcc)"
command -v glslc > /dev/null || die 1 "no glslc, the shader compiler; fix: $(package glslc glslc shaderc)"

headers=${VULKAN_HEADERS:-}
if [ -z "$headers" ]; then
    for folder in /usr/include /usr/local/include; do
        [ -e "$folder/vulkan/vulkan.hpp" ] && headers=$folder && break
    done
fi
[ -e "$headers/vulkan/vulkan.hpp" ] ||
    die 1 "no vulkan/vulkan.hpp${headers:+ in $headers}; fix: $(package libvulkan-dev vulkan-headers vulkan-headers)"
# ggml-vulkan.cpp uses it; without it the compiler stops only after minutes.
grep -qs LayerSettingEXT "$headers"/vulkan/vulkan*.hpp ||
    die 1 "the Vulkan headers in $headers are too old (no LayerSettingEXT); fix: newer ones of github.com/KhronosGroup/Vulkan-Headers, and VULKAN_HEADERS=DIR/include"
printf '#include <spirv/unified1/spirv.hpp>\n' | "$(command -v g++ || command -v clang++)" -fsyntax-only -x c++ - 2> /dev/null ||
    die 1 "no SPIR-V headers; fix: $(package spirv-headers spirv-headers-devel spirv-headers)"
loader=$("$python" -c 'import ctypes.util as u; print(u.find_library("vulkan") or "")')
[ -n "$loader" ] || die 1 "no Vulkan loader; fix: $(package libvulkan-dev vulkan-loader-devel vulkan-icd-loader)"

# --- the build ---

version=$("$python" -c 'from importlib.metadata import version as v; print(v("pywhispercpp"))' 2> /dev/null) || version=1.5.1
# Its setup.py hands every variable of the environment to cmake, so it gets few. The two about RPATH are what
# makes the module find its own libraries; without them it installs and cannot be imported.
settings=(
    "PATH=$PATH" "HOME=$HOME"
    GGML_VULKAN=1
    "CMAKE_INSTALL_RPATH=\$ORIGIN" CMAKE_BUILD_WITH_INSTALL_RPATH=ON
    "CMAKE_BUILD_PARALLEL_LEVEL=${JOBS:-$(nproc)}"
)
[ -n "${VULKAN_HEADERS:-}" ] && settings+=("Vulkan_INCLUDE_DIR=$VULKAN_HEADERS")
for name in http_proxy https_proxy no_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY SSL_CERT_FILE TMPDIR \
    PIP_CERT PIP_CONFIG_FILE PIP_INDEX_URL PIP_FIND_LINKS; do
    [ -n "${!name:-}" ] && settings+=("$name=${!name}")
done
# No cache: it would give back a wheel that was built without Vulkan.
build=("$python" -m pip install --no-cache-dir --force-reinstall --no-deps --no-binary pywhispercpp "pywhispercpp==$version")

if [ -n "$dry" ]; then
    printf '%s\n' "would build pywhispercpp $version for $python" "headers: $headers" "glslc: $(command -v glslc)"
    printf 'env -i'
    printf ' %q' "${settings[@]}" "${build[@]}"
    printf '\n'
    exit 0
fi
say "building pywhispercpp $version with Vulkan: 5 to 15 minutes"
env -i "${settings[@]}" "${build[@]}" || die 3 "the build failed; the compiler's first error is above"

say "checking that it imports and has Vulkan"
cd /
found=$(env -u LD_LIBRARY_PATH "$python" - << 'END'
import pathlib, _pywhispercpp
home = pathlib.Path(_pywhispercpp.__file__).parent
_pywhispercpp.whisper_print_system_info()  # what it prints names the devices
print(*home.glob("libggml-vulkan.so*"), sep="\n")
END
) || die 3 "the module was built but cannot be imported"
[ -n "$found" ] || die 3 "the module was built without Vulkan"
say "done: witness doctor shows what whisper.cpp runs on"
