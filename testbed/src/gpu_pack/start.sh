#!/bin/sh
# Joins the parts that lie beside this script into the directory `joined`, unless they are, and runs the
# measurement there: sh start.sh [OPTIONS OF vgpu-testbed gpu-run]. `--join-only` runs nothing.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
joined=$here/joined

if ! cmp -s "$here/SHA256SUMS" "$joined/SHA256SUMS"; then
    if ! (cd "$here" && sha256sum --quiet --strict --check SHA256SUMS) >&2; then
        echo "start.sh: a part is damaged or missing; bring it again" >&2
        exit 1
    fi
    rm -rf "$joined"
    mkdir "$joined"
    (cd "$here" && cut -c67- SHA256SUMS | xargs cat) | gzip -dc | tar -xf - -C "$joined"
    # Last: what has it is complete.
    cp "$here/SHA256SUMS" "$joined/SHA256SUMS"
fi
if [ "${1-}" = --join-only ]; then
    exit 0
fi
# Started by cargo's tests, the programs would look for their sources.
unset CARGO
XDG_CACHE_HOME=$joined/cache exec "$joined/bin/vgpu-testbed" gpu-run --cc @CC@ --model @MODEL@ "$@"
