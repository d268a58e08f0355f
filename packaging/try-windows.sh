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
trap 'rm -rf "$work"' EXIT
step() { printf '\n== %s\n' "$*"; }

step "build"
rustup target add "$target" 2>/dev/null
start=$SECONDS
uv tool run --quiet --from cargo-zigbuild==0.24.1 --with ziglang==0.17.1 cargo-zigbuild build --quiet --package oomph --target "$target"
echo "built in $((SECONDS - start)) s"

export WINEPREFIX="$work/wine" WINEDEBUG=-all
oomph() { wine "$repository/target/$target/debug/oomph.exe" "$@" | tr -d '\r'; }
# What an answer's exit status may be: 0, or 1 for "no".
answers() { "$@" || [ $? = 1 ]; }
cd "$work"
cp "$repository/crates/oomph/tests/cmd/explain.in/training.log" .

step "commands that run no program"
oomph --version
answers oomph plan llama-3-8b --task qlora --batch 2 --seq 4096 --gpu rtx-4090
answers oomph explain training.log
oomph gpus | head -n 4

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
