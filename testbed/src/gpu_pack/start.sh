#!/bin/sh
# Unpacks the archive that lies beside this script, unless it is unpacked, and runs the measurement:
# sh start.sh [OPTIONS OF vgpu-testbed gpu-run]. `--unpack-only` runs nothing. Where OUT names a directory, the
# results are written there too, as gpu-run.json. It is unpacked beside this script's directory, so that what is
# carried stays small.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
unpacked=$here.unpacked

if ! cmp -s "$here/SHA256SUMS" "$unpacked/SHA256SUMS"; then
    if ! (cd "$here" && sha256sum --quiet --strict --check SHA256SUMS) >&2; then
        echo "start.sh: the archive is damaged or missing; bring it again" >&2
        exit 1
    fi
    rm -rf "$unpacked"
    mkdir "$unpacked"
    # Python has a decompressor of its own, where there is no xz.
    if command -v xz >/dev/null; then
        xz -dc "$here/pack.tar.xz" | tar -xf - -C "$unpacked"
    else
        python3 -c 'import sys, tarfile; tarfile.open(sys.argv[1]).extractall(sys.argv[2])' \
            "$here/pack.tar.xz" "$unpacked"
    fi
    # Last: what has it is complete.
    cp "$here/SHA256SUMS" "$unpacked/SHA256SUMS"
fi
if [ "${1-}" = --unpack-only ]; then
    exit 0
fi
# Started by cargo's tests, the programs would look for their sources.
unset CARGO
if [ -n "${OUT-}" ]; then
    set -- --out "$OUT/gpu-run.json" "$@"
fi
XDG_CACHE_HOME=$unpacked/cache exec "$unpacked/bin/vgpu-testbed" gpu-run --cc @CC@ --build cuda12 \
    --model random --libraries "$unpacked/native" "$@"
