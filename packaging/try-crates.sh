#!/usr/bin/env bash
# Installs oomph from its packaged crates as `cargo install oomph` would, offline and outside the repository.
# Usage: packaging/try-crates.sh [FOLDER]   (a folder to work in, kept; without it a temporary one)
# It needs Rust and, to fetch the crates of others once, the network; the build itself has none.
set -euo pipefail
repository=$(cd "$(dirname "$0")/.." && pwd)
if [ $# -gt 0 ]; then
    mkdir -p "$1"
    work=$(cd "$1" && pwd)
else
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
fi
step() { printf '\n== %s\n' "$*"; }

step "cargo package"
cd "$repository"
rm -rf "$work/packaged" "$work/vendor" "$work/home" "$work/root"
cargo package --workspace --exclude acceptance --exclude xtask --no-verify --allow-dirty --target-dir "$work/packaged"
du -ch "$work"/packaged/package/*.crate | tail -n 1

step "one folder that stands for crates.io"
cargo vendor --locked --versioned-dirs "$work/vendor" >/dev/null
for crate in "$work"/packaged/package/*.crate; do
    tar -xzf "$crate" -C "$work/vendor"
    printf '{"files":{},"package":"%s"}' "$(sha256sum "$crate" | cut -d ' ' -f 1)" \
        >"$work/vendor/$(basename "$crate" .crate)/.cargo-checksum.json"
done
mkdir -p "$work/home"
cat >"$work/home/config.toml" <<TOML
[source.crates-io]
replace-with = "packaged"
[source.packaged]
directory = "$work/vendor"
TOML

step "cargo install oomph"
cd "$work"
# A process in a network of its own reaches nothing, whatever it tries.
apart=()
if unshare --map-root-user --net true 2>/dev/null; then apart=(unshare --map-root-user --net); fi
start=$SECONDS
CARGO_HOME="$work/home" CARGO_TARGET_DIR="$work/built" "${apart[@]}" \
    cargo install oomph --offline --locked --root "$work/root"
echo "built in $((SECONDS - start)) s"

step "the installed program"
program=$work/root/bin/oomph
ls -l "$program" | awk '{ printf "%.1f MB\n", $5 / 1e6 }'
"$program" --version
"$program" plan llama-3-8b --task qlora --batch 2 --seq 4096 --gpu rtx-4090 >"$work/plan.txt" || [ $? = 1 ]
head -n 3 "$work/plan.txt"
# The library was built and is loaded: a program that asks the driver sees the card.
"$program" dry-run --quiet --gpu rtx-3060 -- sh -c 'python3 -c "$0"' 'import ctypes
cuda, count = ctypes.CDLL("libcuda.so.1"), ctypes.c_int()
assert cuda.cuInit(0) == 0 and cuda.cuDeviceGetCount(ctypes.byref(count)) == 0
print("cards that the program sees:", count.value)'
