#!/usr/bin/env bash
# Brings ONNX Runtime with MIGraphX into a Python environment, for the AMD GPU of this machine.
#
#   ./build.sh [--dry-run] [packages|source]
#
#   packages  ROCm 7.1 or newer: installs the onnxruntime-migraphx wheel and checks that its libraries are found.
#   source    ROCm 6.4 (Fedora 43): builds MIGraphX rocm-6.4.2 and ONNX Runtime v1.24.2 with patches/, 1 to 2 hours.
#   Without either it chooses the one that matches the installed HIP library.
#
# Variables:
#   PYTHON          interpreter of the environment   (default: .venv/bin/python in this folder)
#   BUILD_DIR       sources and objects, about 25 GB (default: ~/.cache/witness-build)
#   INSTALL_PREFIX  where MIGraphX goes              (default: ~/.local/share/witness-rocm)
#   JOBS            parallel compilers, 2 GB each    (default: all cores)
#   GFX_TARGET      architecture, e.g. gfx1201       (default: that of the best card)
#   ROCM_PREFIX     where ROCm is                    (default: /opt/rocm if it exists, else /usr)
#   WHEEL           what pip installs for "packages": a version, file or address (default: from PyPI;
#                   AMD's own: docs/amd-gpu.md)
#
# After an interruption, run it again to continue. Nothing is installed as root.
# Exit codes: 0 done, 1 something is missing (and named), 2 wrong usage, 3 a step failed.
set -euo pipefail

MIGRAPHX_URL=https://github.com/ROCm/AMDMIGraphX.git
MIGRAPHX_TAG=rocm-6.4.2
MIGRAPHX_PIN=db302aebfbcdee1da1df64267a73a08299201599
ORT_URL=https://github.com/microsoft/onnxruntime.git
ORT_TAG=v1.24.2
ORT_PIN=058787ceead760166e3c50a0a4cba8a833a6f53f

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=${WITNESS_ROOT:-} # another machine's files, for the tests
PYTHON=${PYTHON:-$here/.venv/bin/python}
BUILD_DIR=${BUILD_DIR:-$HOME/.cache/witness-build}
INSTALL_PREFIX=${INSTALL_PREFIX:-$HOME/.local/share/witness-rocm}
WHEEL=${WHEEL:-onnxruntime-migraphx>=1.24.2,!=1.24.4,!=1.25.0}
JOBS=${JOBS:-$(nproc)}
if [ -z "${ROCM_PREFIX:-}" ]; then
    ROCM_PREFIX=/usr
    [ -d "$root/opt/rocm" ] && ROCM_PREFIX=/opt/rocm
fi
dry=
route=

say() { printf '==> %s\n' "$*" >&2; }
die() {
    printf 'build.sh: %s\n' "$2" >&2
    exit "$1"
}
# Something required is missing: stop, or in a plan print one line.
missing() {
    [ -n "$dry" ] || die 1 "$1"
    printf '# missing: %s\n' "$1"
}
# Runs a command, or shows it.
run() {
    if [ -n "$dry" ]; then
        printf '%q ' "$@"
        printf '\n'
    else
        "$@"
    fi
}

main() {
    for argument in "$@"; do
        case $argument in
            --dry-run) dry=1 ;;
            packages | source) route=$argument ;;
            -h | --help)
                sed -n '2,23s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
                exit 0
                ;;
            *) die 2 "unknown option $argument; --help lists the options" ;;
        esac
    done
    [ "$(uname -sm)" = "Linux x86_64" ] || die 1 "MIGraphX for ONNX Runtime is available for Linux on x86-64 only"
    command -v "$PYTHON" > /dev/null ||
        die 1 "$PYTHON does not exist; fix: python3 -m venv .venv && .venv/bin/pip install . (or PYTHON=...)"
    family=$(read_family)
    hip=$(hip_major)
    if [ -z "$route" ]; then
        case $hip in
            0) die 1 "no HIP library (libamdhip64.so) below $root$ROCM_PREFIX; fix: $(install_rocm)" ;;
            [1-6]) route=source ;;
            *) route=packages ;;
        esac
    fi
    say "route: $route; HIP $hip"
    "install_from_$route"
    say "checking the installation"
    run "$PYTHON" -m witness doctor
}

# --- what this machine is ---

read_family() {
    if [ -r "$root/etc/os-release" ]; then
        # shellcheck disable=SC1090,SC1091
        (. "$root/etc/os-release" && printf '%s %s' "${ID:-}" "${ID_LIKE:-}")
    fi
}

# Whether this is Ubuntu 26.10 or newer, whose own packages have MIGraphX with its GPU part.
ubuntu_has_it() {
    # shellcheck disable=SC1090,SC1091
    (. "$root/etc/os-release" && [ "${ID:-}" = ubuntu ] &&
        [ "$(printf '26.10\n%s\n' "${VERSION_ID:-0}" | sort -V | head -n 1)" = 26.10 ])
}

# The command that installs a package, from its names in Debian, Fedora and Arch.
package() {
    case " $family " in
        *" debian "* | *" ubuntu "*) printf 'sudo apt install %s' "$1" ;;
        *" fedora "* | *" rhel "*) printf 'sudo dnf install %s' "$2" ;;
        *" arch "*) printf 'sudo pacman -S %s' "$3" ;;
        *) printf 'install %s' "$1" ;;
    esac
}

# The newest ROCm from AMD below /opt, such as 7.2, if any.
rocm_version() {
    local name number newest=
    for name in "$root"/opt/rocm-[0-9]* "$root"/opt/rocm/core-[0-9]* "$root"/opt/rocm*/lib/libamdhip64.so.*.*.*; do
        [ -e "$name" ] || continue
        name=${name##*/}
        case $name in
            # libamdhip64.so.7.2.70204 is of ROCm 7.2.4; since 7.14 the last number is another one.
            libamdhip64.so.*.[0-9]*.[0-9]*)
                number=${name##*.}
                [ "${name#"libamdhip64.so.$((number / 10000))."}" != "$name" ] || continue
                number=$((number / 10000)).$((number / 100 % 100))
                ;;
            *) number=$(printf '%s' "${name##*-}" | cut -d. -f1,2) ;;
        esac
        newest=$(printf '%s\n%s\n' "$newest" "$number" | sort -V | tail -n 1)
    done
    printf '%s' "$newest"
}

# src/witness/doctor/machine.py says the same.
install_rocm() {
    local source="add AMD's package source of MIGraphX (docs/amd-gpu.md), then sudo apt update && sudo apt install"
    local deb=amdrocm-migraphx_2.16.0-3.py312_amd64.deb
    case " $family " in
        *" debian "* | *" ubuntu "*)
            case $(rocm_version) in
                7.1 | 7.2) printf 'sudo apt update && sudo apt install migraphx' ;;
                7.14) printf 'download %s from AMD (docs/amd-gpu.md), then sudo dpkg -i %s' "$deb" "$deb" ;;
                10.0) printf '%s amdrocm-migraphx' "$source" ;;
                10.*) printf '%s amdrocm10-migraphx' "$source" ;;
                *)
                    if [ -z "$(rocm_version)" ] && ubuntu_has_it; then
                        printf 'sudo apt install libmigraphx-c3 (from universe)'
                    else
                        printf "add AMD's two package sources (docs/amd-gpu.md), then sudo apt install amdrocm10-migraphx"
                    fi
                    ;;
            esac
            ;;
        *" fedora "* | *" rhel "*) printf 'sudo dnf install migraphx (Fedora 44 or newer, or EPEL 10; on 43 the packages that "build.sh source" names)' ;;
        *) package migraphx migraphx migraphx ;;
    esac
}

# The folders of libraries, below $root; core is of ROCm 7.14 and newer, extras of 10.1 and newer.
libraries() {
    local folder
    for folder in "$root$ROCM_PREFIX"/lib "$root$ROCM_PREFIX"/lib64 "$root$ROCM_PREFIX"/core*/lib \
        "$root$ROCM_PREFIX"/extras-*/lib "$root"/usr/lib64 "$root"/usr/lib/x86_64-linux-gnu; do
        printf '%s\n' "$folder" "$folder/migraphx/lib"
    done
}

hip_major() {
    local newest=0 file number
    while read -r folder; do
        for file in "$folder"/libamdhip64.so.[0-9]*; do
            [ -e "$file" ] || continue
            number=${file##*libamdhip64.so.}
            number=${number%%.*}
            [ "$number" -gt "$newest" ] && newest=$number
        done
    done < <(libraries)
    printf '%s' "$newest"
}

has_library() {
    local folder
    while read -r folder; do
        [ -n "$(compgen -G "$folder/$1*")" ] && return 0
    done < <(libraries)
    return 1
}

# The newest MIGraphX as the number in its file's name: 2015000 is 2.15.0.
migraphx_number() {
    local newest=0 folder file number
    while read -r folder; do
        for file in "$folder"/libmigraphx.so.[0-9]*; do
            number=${file##*libmigraphx.so.}
            number=${number%%.*}
            [ -e "$file" ] && [ "$number" -gt "$newest" ] && newest=$number
        done
    done < <(libraries)
    printf '%s' "$newest"
}

# Whether cmake would find a package of one of these names.
has_cmake() {
    local name folder file
    for name in "$@"; do
        while read -r folder; do
            for file in "$folder/cmake/$name"/*onfig.cmake; do
                [ -e "$file" ] && return 0
            done
        done < <(libraries; printf '%s\n' "$root/usr/share" "$root$ROCM_PREFIX/share")
    done
    return 1
}

has_header() {
    [ -e "$root/usr/include/$1" ] || [ -e "$root$ROCM_PREFIX/include/$1" ] || [ -e "$root/usr/local/include/$1" ]
}

need_command() { command -v "$1" > /dev/null || missing "no $1; fix: $(package "$2" "$3" "$4")"; }
need_cmake() {
    local cure
    cure=$(package "$2" "$3" "$4")
    # shellcheck disable=SC2086 # several names in one word
    has_cmake $1 || missing "no cmake files of ${1%% *}; fix: $cure"
}
need_header() { has_header "$1" || missing "no header $1; fix: $(package "$2" "$3" "$4")"; }

# --- ROCm 7.1 and newer: the wheel ---

install_from_packages() {
    has_library libamdhip64.so.7 || missing "no libamdhip64.so.7, which the wheel needs (found: HIP $hip); fix: $(install_rocm)"
    has_library libmigraphx_c.so.3 || missing "no MIGraphX (libmigraphx_c.so.3); fix: $(install_rocm)"
    # Debian's package is built for CPUs.
    has_library libmigraphx_gpu.so || missing "this MIGraphX has no GPU part (libmigraphx_gpu); fix: $(install_rocm)"
    # 2.13 numbers the types of arrays differently, under the same library name.
    [ "$(migraphx_number)" -ge 2014000 ] || missing "this MIGraphX is older than 2.14 (ROCm 7.1); fix: $(install_rocm)"
    # Both have the same files: pip must not leave the one without MIGraphX. Two versions need a newer glibc than
    # their tags say.
    run "$PYTHON" -m pip uninstall --yes onnxruntime onnxruntime-migraphx
    run "$PYTHON" -m pip install --no-deps "$WHEEL"
}

# --- ROCm 6.4: from source ---

install_from_source() {
    check_tools
    local gfx=${GFX_TARGET:-$(best_gfx)}
    [ -n "$gfx" ] || missing "no AMD card to be seen; fix: GFX_TARGET=gfx1201 (or another) names the one to build for"
    say "for ${gfx:=GFX_TARGET}, in $BUILD_DIR, $JOBS jobs"
    run mkdir -p "$BUILD_DIR" "$INSTALL_PREFIX"
    clone migraphx "$MIGRAPHX_URL" "$MIGRAPHX_TAG" "$MIGRAPHX_PIN"
    local mlir=ON
    has_cmake rocMLIR || mlir=OFF
    [ "$mlir" = ON ] || patch_tree migraphx 04-migraphx-mlir-guard
    once "migraphx $MIGRAPHX_PIN $gfx mlir=$mlir $ROCM_PREFIX $INSTALL_PREFIX" build_migraphx "$gfx" "$mlir"
    clone onnxruntime "$ORT_URL" "$ORT_TAG" "$ORT_PIN"
    has_symbol migraphx_shape_fp4x2_type || patch_tree onnxruntime 07-ort-fp4x2
    has_symbol migraphx_quantize_bf16 || patch_tree onnxruntime 08-ort-bf16
    once "onnxruntime $ORT_PIN $ROCM_PREFIX $INSTALL_PREFIX" build_onnxruntime
    run "$PYTHON" -m pip uninstall --yes onnxruntime onnxruntime-migraphx
    install_wheel
}

check_tools() {
    need_command git git git git
    need_command cmake cmake cmake cmake
    need_command ninja ninja-build ninja-build ninja
    local version
    version=$(cmake --version 2> /dev/null | sed -n '1s/[^0-9]*//p') || true
    [ "$(printf '3.28\n%s\n' "$version" | sort -V | head -n 1)" = 3.28 ] ||
        missing "cmake $version is too old for ONNX Runtime; fix: $PYTHON -m pip install 'cmake>=3.28', with its folder first in PATH"
    clang=$(find_clang)
    [ -n "$clang" ] || missing "no clang++ of ROCm; fix: $(package rocm-llvm-dev rocm-clang-devel rocm-llvm)"
    need_cmake "ROCM ROCm rocm-cmake rocm" rocm-cmake rocm-cmake rocm-cmake
    need_cmake "hip" hip-dev rocm-hip-devel hip-runtime-amd
    need_cmake "hiprtc" hip-dev rocm-hip-devel hip-runtime-amd
    need_cmake "miopen" miopen-hip-dev miopen-devel miopen-hip
    need_cmake "rocblas" rocblas-dev rocblas-devel rocblas
    need_cmake "hipblas" hipblas-dev hipblas-devel hipblas
    need_cmake "hipblaslt" hipblaslt-dev hipblaslt-devel hipblaslt
    need_cmake "nlohmann_json" nlohmann-json3-dev json-devel nlohmann-json
    need_cmake "msgpackc-cxx msgpack-cxx msgpack" libmsgpack-cxx-dev msgpack-cxx-devel msgpack-cxx
    need_header sqlite3.h libsqlite3-dev sqlite-devel sqlite
    need_header google/protobuf/message.h "libprotobuf-dev protobuf-compiler" "protobuf-devel protobuf-compiler" protobuf
    has_header half.hpp || need_header half/half.hpp half half-devel half
    "$PYTHON" -c 'import sysconfig, pathlib, sys; sys.exit(not pathlib.Path(sysconfig.get_path("include"), "Python.h").exists())' ||
        missing "no Python.h for $PYTHON; fix: $(package python3-dev python3-devel python)"
}

find_clang() {
    local folder
    for folder in "$ROCM_PREFIX/llvm/bin" "$ROCM_PREFIX/lib/llvm/bin" /usr/lib64/rocm/llvm/bin; do
        [ -x "$root$folder/clang++" ] && printf '%s' "$folder/clang++" && return
    done
    return 0
}

best_gfx() {
    local found
    found=$("$PYTHON" -c 'from witness.gpu import cards; card = cards.pick_card(cards.list_cards()); print(card.gfx if card else "")' 2> /dev/null) || true
    printf '%s' "$found"
}

# Arguments: folder in $BUILD_DIR, URL, tag, full id. git fetches the tag, and the id must match.
clone() {
    local folder=$BUILD_DIR/$1
    if [ ! -d "$folder/.git" ]; then
        # Under another name first, so that a file with the final name is complete.
        run rm -rf "$folder.part"
        run git clone --quiet --depth 1 --recurse-submodules --shallow-submodules --branch "$3" "$2" "$folder.part"
        run mv "$folder.part" "$folder"
    fi
    [ -n "$dry" ] && return
    local found
    found=$(git -C "$folder" rev-parse HEAD)
    [ "$found" = "$4" ] || die 3 "$folder is at $found, not at the pinned $4; fix: rm -r $folder"
}

patch_tree() {
    local folder=$BUILD_DIR/$1 patch=$here/patches/$2.patch
    if [ -n "$dry" ]; then
        run git -C "$folder" apply "$patch"
    elif git -C "$folder" apply --reverse --check "$patch" 2> /dev/null; then
        say "$2 is already applied"
    else
        git -C "$folder" apply "$patch" || die 3 "$2 does not apply; fix: rm -r $folder"
        say "applied $2"
    fi
}

# A step that is skipped if it was done with the same settings; its first argument names it.
once() {
    local settings=$1 step=$2
    shift 2
    local stamp=$BUILD_DIR/$step.done
    if [ -z "$dry" ] && [ -e "$stamp" ] && [ "$(cat "$stamp")" = "$settings" ]; then
        say "$step: already done"
        return
    fi
    "$step" "$@"
    [ -n "$dry" ] || printf '%s\n' "$settings" > "$stamp"
}

build_migraphx() {
    say "MIGraphX: 20 to 60 minutes"
    # ROCm's clang++, not hipcc: that would compile host files as HIP (AMDMIGraphX#4799).
    run cmake -S "$BUILD_DIR/migraphx" -B "$BUILD_DIR/migraphx-build" -G Ninja \
        -DCMAKE_BUILD_TYPE=Release "-DCMAKE_CXX_COMPILER=${clang:=clang++}" "-DCMAKE_C_COMPILER=${clang%++}" \
        "-DCMAKE_PREFIX_PATH=$ROCM_PREFIX" "-DCMAKE_INSTALL_PREFIX=$INSTALL_PREFIX" \
        "-DCMAKE_INSTALL_LIBDIR=lib" "-DCMAKE_INSTALL_RPATH=$INSTALL_PREFIX/lib;$INSTALL_PREFIX/lib/migraphx/lib" \
        "-DGPU_TARGETS=$1" "-DMIGRAPHX_ENABLE_MLIR=$2" -DMIGRAPHX_ENABLE_PYTHON=OFF \
        -DMIGRAPHX_USE_COMPOSABLEKERNEL=OFF -DBUILD_TESTING=OFF || die 3 "cmake failed for MIGraphX; its first error is above"
    run cmake --build "$BUILD_DIR/migraphx-build" --parallel "$JOBS" || die 3 "MIGraphX does not compile; run this again to continue"
    run cmake --install "$BUILD_DIR/migraphx-build" || die 3 "MIGraphX cannot be installed in $INSTALL_PREFIX"
}

# Whether the MIGraphX that ONNX Runtime will be built with has it.
has_symbol() { grep -qs "$1" "$INSTALL_PREFIX/include/migraphx/migraphx.h"; }

build_onnxruntime() {
    say "ONNX Runtime: 20 to 60 minutes"
    run "$PYTHON" -m pip install --quiet numpy packaging setuptools wheel
    local extra=("CMAKE_SHARED_LINKER_FLAGS=-Wl,-rpath,$INSTALL_PREFIX/lib:$ROCM_PREFIX/lib" onnxruntime_BUILD_UNIT_TESTS=OFF
        "CMAKE_PREFIX_PATH=$INSTALL_PREFIX;$ROCM_PREFIX")
    run "$PYTHON" "$BUILD_DIR/onnxruntime/tools/ci_build/build.py" --build_dir "$BUILD_DIR/onnxruntime-build" \
        --config Release --update --build --build_wheel --skip_tests --parallel "$JOBS" --allow_running_as_root \
        --use_migraphx --migraphx_home "$INSTALL_PREFIX" --cmake_extra_defines "${extra[@]}" ||
        die 3 "ONNX Runtime does not compile; run this again to continue"
}

install_wheel() {
    local wheels=("$BUILD_DIR"/onnxruntime-build/Release/dist/onnxruntime*.whl)
    [ -n "$dry" ] || [ -e "${wheels[0]}" ] || die 3 "no wheel in $BUILD_DIR/onnxruntime-build/Release/dist"
    run "$PYTHON" -m pip install --no-deps --force-reinstall "${wheels[0]}"
}

main "$@"
