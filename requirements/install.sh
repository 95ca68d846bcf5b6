#!/bin/sh
# install.sh VENV NAME…: what is locked in requirements/NAME.txt, into the environment VENV.
# uv (locked as all others) takes a third of the time of pip, which is asked where uv does not run or
# does not reach what pip reaches. Both refuse whatever has another hash than the one written down.
set -eu
venv=$1
here=$(dirname "$0")
shift
for name in "$@"; do
    set -- "$@" -r "$here/$name.txt"
    shift
done
by_pip() {
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-input \
        --require-hashes "$@"
}
by_uv() {
    by_pip -r "$here/uv.txt" || return
    "$venv/bin/uv" pip install --quiet --compile-bytecode --python "$venv/bin/python" \
        --require-hashes "$@"
}
by_uv "$@" || { echo "uv could not install this; pip does, which takes longer" >&2; by_pip "$@"; }
