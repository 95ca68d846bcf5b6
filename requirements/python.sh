#!/bin/sh
# python.sh: the Python of which an environment is made: the system's if it can (3.11 or newer, with
# venv), else the first of PATH. The system's is built with all optimisations; one that pyenv built
# is not, and needs a third more CPU for the same request (docs/decisions/0095-the-systems-python.md).
for python in /usr/bin/python3 python3; do
    if "$python" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
    then
        echo "$python"
        exit
    fi
done
echo python3
