#!/usr/bin/env bash
# Runs the aarch64 tarball of `cargo xtask dist --platform aarch64-linux` under qemu-user, in a root folder made of Debian's
# arm64 packages: what runs no program, and a dry run of PyTorch.
# Usage: packaging/try-arm.sh [FOLDER]   (the folder of the files; without it target/packages)
# It needs root on Debian or Ubuntu, qemu-user-static, uv and the network. WORK names a folder that is kept between calls.
set -euo pipefail
repository=$(cd "$(dirname "$0")/.." && pwd)
dist=$(cd "${1:-$repository/target/packages}" && pwd)
tarball=$(find "$dist" -name "oomph-*-aarch64-linux.tar.gz" | head -n 1)
[ -n "$tarball" ] || { echo "no tarball in $dist: run \`cargo xtask dist --platform aarch64-linux\`" >&2; exit 2; }
(cd "$dist" && sha256sum --check --quiet SHA256SUMS-aarch64-linux)
if [ -n "${WORK:-}" ]; then
    mkdir -p "$WORK" && work=$(cd "$WORK" && pwd)
else
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
fi
root=$work/root
step() { printf '\n== %s\n' "$*"; }

# Debian's own package registers the interpreter; where nothing did, the kernel is asked once. F: the file is opened now,
# so that it need not be inside the root folder.
[ -e /proc/sys/fs/binfmt_misc/register ] || mount -t binfmt_misc none /proc/sys/fs/binfmt_misc
if [ ! -e /proc/sys/fs/binfmt_misc/qemu-aarch64 ]; then
    printf '%s' ':qemu-aarch64:M::\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00:\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff:'"$(command -v qemu-aarch64-static)"':F' \
        >/proc/sys/fs/binfmt_misc/register
fi

step "a root folder of arm64"
if [ ! -x "$root/usr/bin/python3.11" ]; then
    dpkg --add-architecture arm64
    apt-get -qq update
    mkdir -p "$work/debs" "$root"/{dev,proc,root,tmp,work}
    packages=(libc6 libgcc-s1 libstdc++6 python3.11-minimal libpython3.11-minimal libpython3.11-stdlib zlib1g libexpat1 libssl3
        libffi8 libbz2-1.0 liblzma5 libsqlite3-0 libtinfo6 libncursesw6 libreadline8 libuuid1 libdb5.3 libnsl2 libtirpc3 dash
        coreutils libselinux1 libpcre2-8-0 libgmp10 libacl1 libattr1 libcrypt1)
    (cd "$work/debs" && apt-get -qq download "${packages[@]/%/:arm64}" 2>/dev/null)
    for package in "$work"/debs/*.deb; do dpkg-deb --extract "$package" "$root"; done
    ln -sf dash "$root/bin/sh"
    ln -sf python3.11 "$root/usr/bin/python"
fi
rm -rf "$root"/opt/oomph*
mkdir -p "$root/opt/torch"
tar -xzf "$tarball" -C "$root/opt"
mv "$root"/opt/oomph-* "$root/opt/oomph"
if [ ! -d "$root/opt/torch/torch" ]; then
    uv pip install --quiet --python python3 --python-platform aarch64-manylinux_2_28 --python-version 3.11 \
        --target "$root/opt/torch" torch==2.15.0 numpy transformers
fi
cp "$repository/examples/finetune_gpt2.py" "$repository/crates/oomph/tests/cmd/explain.in/training.log" "$root/work/"

inside() {
    start=$(date +%s%N)
    unshare --mount --pid --fork --kill-child sh -c '
        root=$1 && shift
        mount -t proc proc "$root/proc" && mount --rbind /dev "$root/dev"
        exec chroot "$root" "$@"' sh "$root" \
        /usr/bin/env -i PATH=/opt/oomph/bin:/usr/bin:/bin HOME=/root LANG=C.UTF-8 PYTHONPATH=/opt/torch \
        /bin/sh -c "cd /work && $1"
    awk -v start="$start" -v end="$(date +%s%N)" 'BEGIN { printf "(%.1f s)\n", (end - start) / 1e9 }'
}

step "what runs no program"
inside 'uname -m && oomph --version'
# An answer of "does not fit" is one, with exit status 1.
inside 'oomph plan llama-3-8b --task qlora --batch 2 --seq 4096 --gpu rtx-4090 || [ $? = 1 ]'
inside 'oomph explain training.log || [ $? = 1 ]'

step "a program that asks the driver"
inside 'oomph dry-run --quiet --gpu gh200-96gb -- sh -c "python -c \"
import ctypes
cuda, count = ctypes.CDLL(\\\"libcuda.so.1\\\"), ctypes.c_int()
assert cuda.cuInit(0) == 0 and cuda.cuDeviceGetCount(ctypes.byref(count)) == 0
print(\\\"cards that the program sees:\\\", count.value)\""'

step "a dry run of PyTorch"
inside 'oomph dry-run --gpu rtx-3060 -- python finetune_gpt2.py --batch-size 4'
