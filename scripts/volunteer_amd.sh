#!/usr/bin/env bash
# For somebody with an AMD card: installs Witness in a folder of its own, tries the card, and prints one JSON document.
#
#   scripts/volunteer_amd.sh [--dry-run] [options of benchmarks/volunteer.py]
#
# It needs ROCm with MIGraphX (docs/amd-gpu.md), Python 3.10 to 3.14 and about half an hour. The document is
# volunteer.json in this folder, too: paste it into an issue of this project, form "AMD card".
# It holds figures, versions and names of models: no recording, no word, no user name.
#
# Variables: PYTHON (default: python3), VENV (default: .venv-volunteer in this folder), WHEEL as for build.sh.
# Exit codes: 0 the document is there, 1 something is missing, 2 wrong usage, 3 an installation failed.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
PYTHON=${PYTHON:-python3}
VENV=${VENV:-$here/.venv-volunteer}
dry=
[ "${1:-}" = --dry-run ] && { dry=1 && shift; }
for argument in "$@"; do
    case $argument in
        -h | --help)
            sed -n '2,12s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
            exit 0
            ;;
        --recording | --models | --whisper | --device | --probe | --only | --repeats | --limit | --*=*) ;;
        -*)
            echo "volunteer_amd.sh: unknown option $argument; --help lists the options" >&2
            exit 2
            ;;
    esac
done

run() {
    if [ -n "$dry" ]; then
        printf '%q ' "$@"
        printf '\n'
    else
        "$@" >&2
    fi
}

command -v "$PYTHON" > /dev/null || {
    echo "volunteer_amd.sh: no $PYTHON; fix: install Python 3.10 to 3.14, or PYTHON=..." >&2
    exit 1
}
[ -x "$VENV/bin/python" ] || run "$PYTHON" -m venv "$VENV" || exit 3
run "$VENV/bin/python" -m pip install --quiet "${here}[words]" || exit 3
# What is missing there is named by it, and by the report below: a card that cannot be used is worth reporting, too.
run env PYTHON="$VENV/bin/python" "$here/build.sh" packages ||
    echo "volunteer_amd.sh: ONNX Runtime for the card was not installed; the report goes on without it" >&2
if [ -n "$dry" ]; then
    run "$VENV/bin/python" "$here/benchmarks/volunteer.py" "$@"
    exit 0
fi
"$VENV/bin/python" "$here/benchmarks/volunteer.py" "$@" | tee "$here/volunteer.json"
