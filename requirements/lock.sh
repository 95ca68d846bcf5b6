#!/bin/sh
# Compile the hashed requirements: one resolution for everything, then one file for each use,
# so that the demo and the tests never want another version than the console runs with.
# Where packages come from is not written down: uv does so only when it is asked to.
set -eu
cd "$(dirname "$0")"
compile() {
    uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
        --no-header --no-strip-extras "$@"
}
all=$(mktemp)
trap 'rm -f "$all"' EXIT
compile runtime.in demo.in dev.in uv.in --no-annotate -o "$all"
for name in runtime demo dev uv; do
    compile "$name.in" --constraint "$all" --no-annotate --output-file "$name.txt"
done
