#!/usr/bin/env bash
# Installs what `cargo xtask dist` made, each in the ways that users do, in a root folder that holds nothing but a Python:
# no Rust, no compiler, not the repository.
# Usage: packaging/try.sh [FOLDER]   (the folder of the files; without it target/packages)
# It needs unshare and chroot, and the network for the packages of the last step. UV_CACHE_DIR names a cache of uv that
# the last step may use; without it every package is downloaded.
set -euo pipefail
repository=$(cd "$(dirname "$0")/.." && pwd)
dist=$(cd "${1:-$repository/target/packages}" && pwd)
wheel=$(find "$dist" -name "oomph-*x86_64.whl" | head -n 1)
tarball=$(find "$dist" -name "oomph-*-x86_64-linux.tar.gz" | head -n 1)
deb=$(find "$dist" -name "oomph_*_amd64.deb" | head -n 1)
[ -n "$wheel" ] || { echo "no wheel in $dist: run \`cargo xtask dist\`" >&2; exit 2; }
(cd "$dist" && sha256sum --check --quiet SHA256SUMS-x86_64-linux)

root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
step() { printf '\n== %s\n' "$*"; }

# A Python with the libraries that it and machine code of others need, a shell, and what the resolver reads.
prefix=$(python3 -c 'import sys; print(sys.base_prefix)')
python=$(python3 -c 'import os, sys; print(os.path.realpath(sys.executable))')
mkdir -p "$root"/{bin,dev,etc,proc,root,tmp,usr/bin,work} "$root$(dirname "$prefix")"
if [ "$prefix" = /usr ]; then
    mkdir -p "$root/usr/lib"
    cp "$python" "$root/usr/bin/"
    cp -a /usr/lib/python3* "$root/usr/lib/"
else
    cp -a "$prefix" "$root$prefix"
fi
ln -sf "$python" "$root/usr/bin/python3"
cp "$(command -v dash || command -v sh)" "$root/bin/sh"
tools=()
for tool in env uname; do tools+=("$(command -v "$tool")"); done
if uv=$(command -v uv) && uv=$(python3 -c 'import sys, os; print(os.path.realpath(sys.argv[1]))' "$uv"); then
    # A launcher of another tool is not the program.
    head -c 4 "$uv" | grep -q ELF || uv=$(uv run --no-project python -c 'import uv; print(uv.find_uv_bin())' 2>/dev/null || true)
    [ -n "$uv" ] && tools+=("$uv")
fi
cp "${tools[@]}" "$root/usr/bin/"
library() { ldconfig -p | awk -v name="$1" '$1 == name && /x86-64/ { print $NF; exit }'; }
{
    find "$root$prefix" "$root/usr/bin" "$root/bin" -type f \( -perm -u+x -o -name '*.so*' \) -exec sh -c 'ldd "$@" 2>/dev/null || true' sh {} + |
        awk '$2 == "=>" && $3 ~ /^\// { print $3 } $1 ~ /^\/lib.*ld-linux/ { print $1 }'
    for name in ld-linux-x86-64.so.2 libstdc++.so.6 libgcc_s.so.1 libnss_dns.so.2 libnss_files.so.2 libresolv.so.2; do library "$name"; done
} | sort -u | grep -v "^$root" | while read -r file; do
    [ -e "$root$file" ] || { mkdir -p "$root$(dirname "$file")" && cp -L "$file" "$root$file"; }
done
for file in /etc/resolv.conf /etc/hosts /etc/nsswitch.conf /etc/passwd /etc/group /etc/ssl/certs/ca-certificates.crt; do
    if [ -e "$file" ]; then mkdir -p "$root$(dirname "$file")" && cp -L "$file" "$root$file"; fi
done
cp "$repository/examples/finetune_gpt2.py" "$root/work/"
cp "$repository/crates/oomph/tests/cmd/explain.in/training.log" "$root/work/"
cp "$wheel" "$root/tmp/"
wheel=/tmp/$(basename "$wheel")

# What the user set for installers and proxies holds here too, and nothing else.
settings=(PATH=/v/bin:/usr/bin:/bin HOME=/root LANG=C.UTF-8 "SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt")
while IFS= read -r setting; do settings+=("$setting"); done < <(env | grep -iE '^(PIP_|UV_(INDEX|DEFAULT_INDEX)|[a-z]+_proxy=)' || true)
index=$(python3 -m pip config get global.index-url 2>/dev/null || true)
[ -n "$index" ] && settings+=("PIP_INDEX_URL=$index" "UV_DEFAULT_INDEX=$index")
if [ -n "${UV_CACHE_DIR:-}" ]; then
    mkdir -p "$root/uv-cache"
    settings+=(UV_CACHE_DIR=/uv-cache)
fi
as_root=()
[ "$(id -u)" = 0 ] || as_root=(--map-root-user)
inside() {
    start=$(date +%s%N)
    unshare "${as_root[@]}" --mount --pid --fork --kill-child sh -c '
        root=$1 cache=$2 && shift 2
        mount -t proc proc "$root/proc" && mount --rbind /dev "$root/dev"
        if [ -n "$cache" ]; then mount --bind "$cache" "$root/uv-cache"; fi
        exec chroot "$root" "$@"' sh "$root" "${UV_CACHE_DIR:-}" \
        env -i "${settings[@]}" sh -c "cd /work && $1"
    awk -v start="$start" -v end="$(date +%s%N)" 'BEGIN { printf "(%.1f s)\n", (end - start) / 1e9 }'
}
size() { du -sm --apparent-size "$root$1" | awk -v what="$1" '{ printf "%s: %d MB\n", what, $1 }'; }

step "what is there"
inside 'python3 --version; for tool in cargo rustc cc gcc clang ld; do command -v $tool && exit 1; done; echo "no Rust, no compiler"'

step "pip install oomph"
inside 'python3 -m venv /v'
before=$(du -sm --apparent-size "$root/v" | cut -f 1)
inside "pip install --quiet --no-index --disable-pip-version-check $wheel"
echo "$(($(du -sm --apparent-size "$root/v" | cut -f 1) - before)) MB"
inside 'oomph --version && python -m oomph --version'
# An answer of "does not fit" is one, with exit status 1.
inside 'oomph plan llama-3-8b --task qlora --batch 2 --seq 4096 --gpu rtx-4090 || [ $? = 1 ]'
inside 'oomph explain training.log || [ $? = 1 ]'

step "the environment that oomph was installed into is the program's, once it holds more"
inside 'pip install --quiet --disable-pip-version-check six'
# Behind a shell, because oomph itself refuses a Python without a framework.
inside 'unset VIRTUAL_ENV; PATH=/usr/bin:/bin /v/bin/oomph dry-run --quiet --gpu rtx-3060 -- sh -c "python -c \"import sys, six; print(sys.prefix)\""' | grep -x /v

if [ -x "$root/usr/bin/uv" ]; then
    step "uvx oomph"
    inside "uv tool run --from $wheel oomph --version"
fi

step "pipx run oomph"
inside 'python3 -m venv /pipx && /pipx/bin/pip install --quiet --disable-pip-version-check pipx'
inside "/pipx/bin/pipx run --spec $wheel oomph --version 2>/dev/null"

step "the tarball"
mkdir "$root/opt" && tar -xzf "$tarball" -C "$root/opt"
size /opt
inside 'PATH=/usr/bin:/bin; /opt/oomph-*/bin/oomph --version'

step "the Debian package"
dpkg-deb --info "$deb" | grep -E '^ (Package|Version|Architecture|Installed-Size|Depends)'
mkdir -p "$root/var/lib/dpkg"
dpkg-deb --extract "$deb" "$root/"
inside 'PATH=/usr/bin:/bin; /usr/bin/oomph --version'
ls "$root/usr/share/man/man1" | tr '\n' ' '

step "a dry run with torch, its download included unless it is in the cache"
inside 'oomph dry-run --gpu rtx-3060 --with torch --with transformers -- python finetune_gpt2.py --batch-size 4'
size /root/.cache/oomph
