#!/usr/bin/env bash
# Builds oomph for Windows and runs under wine what runs no program there.
# Usage: packaging/try-windows.sh [RECORDING]   (a recording that `oomph dry-run --snapshot RECORDING` wrote)
# It needs Rust, uv, wine and the network. CI only checks that it compiles.
set -euo pipefail
recording=${1:+$(realpath "$1")}
cd "$(dirname "$0")/.."
repository=$PWD
target=x86_64-pc-windows-gnu
work=$(mktemp -d)
# The server of wine writes to its folder for some seconds more.
trap 'WINEPREFIX="$work/wine" /usr/lib/wine/wineserver64 -k -w 2>/dev/null || true; rm -rf "$work" || true' EXIT
step() { printf '\n== %s\n' "$*"; }

step "build"
rustup target add "$target" 2>/dev/null
start=$SECONDS
uv tool run --quiet --from cargo-zigbuild==0.24.1 --with ziglang==0.17.1 cargo-zigbuild build --quiet --package oomph --target "$target"
echo "built in $((SECONDS - start)) s"

# Debian 12's wine has no bcryptprimitives.dll, from which Rust's library takes random numbers.
stand_in=$work/prng.c
cat >"$stand_in" <<'C'
#include <stddef.h>
extern unsigned char __stdcall SystemFunction036(void *, unsigned long);
__declspec(dllexport) int ProcessPrng(unsigned char *bytes, size_t count) { return SystemFunction036(bytes, (unsigned long)count); }
C
cp "$repository/target/$target/debug/oomph.exe" "$work/"
uv tool run --quiet --from ziglang==0.17.1 python-zig cc -target x86_64-windows-gnu -shared \
    -o "$work/bcryptprimitives.dll" "$stand_in" -ladvapi32

wine=$(command -v wine64 || ls /usr/lib/wine/wine64)
export WINEPREFIX="$work/wine" WINEDEBUG=-all WINEARCH=win64
"$wine" wineboot --init >/dev/null 2>&1
oomph() { "$wine" "$work/oomph.exe" "$@" | tr -d '\r'; }
# What an answer's exit status may be: 0, or 1 for "no".
answers() { "$@" || [ $? = 1 ]; }
cd "$work"
cp "$repository/crates/oomph/tests/cmd/explain.in/training.log" .

step "commands that run no program"
oomph --version
answers oomph plan llama-3-8b --task qlora --batch 2 --seq 4096 --gpu rtx-4090
answers oomph explain training.log
oomph gpus >gpus.txt && head -n 4 gpus.txt

if [ -n "$recording" ]; then
    step "a recording"
    cp "$recording" recording.pickle
    answers oomph explain recording.pickle
    answers oomph check recording.pickle --max-peak 1GiB
    answers oomph diff recording.pickle recording.pickle
    oomph view recording.pickle --output page.html
    ls -l page.html | awk '{ printf "page.html: %.1f MB\n", $5 / 1e6 }'
fi

step "a program is not run here, and the answer says what to paste"
oomph dry-run --gpu rtx-3060 -- python train.py || echo "exit status $?"
