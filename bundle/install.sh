#!/bin/sh
# Installs distrl from this folder, without a network: ./install.sh [PYTHON]
# PYTHON is the interpreter of the environment, python3 by default. Exit code 2: nothing has been changed.
set -eu

fail() {
    echo "install.sh: error: $*" >&2
    exit 2
}

[ $# -le 1 ] || fail "$# arguments: give one, the interpreter of the environment"
python=${1:-python3}
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
wanted=$(cat "$here/python.txt")

# The only line that an interpreter of any age must understand.
look='import platform, sys; print("%d.%d on %s" % (sys.version_info[0], sys.version_info[1], platform.machine()))'
found=$("$python" -c "$look" 2> /dev/null) || fail "$python does not run: name the interpreter of the environment"
[ "$found" = "$wanted" ] || fail "this bundle is for Python $wanted, $python is $found:" \
    "name another interpreter, or make another bundle (make bundle BUNDLE_PYTHON=${found%% *})"
"$python" "$here/check.py" || exit 2

# pip chooses and checks all files before it installs the first one.
install() {
    "$python" -m pip install --disable-pip-version-check --progress-bar off --no-index "$@"
}

echo "installing distrl for $python (half a minute)"
set -- "$here"/frameworks/*.whl
if [ -e "$1" ]; then
    install --only-binary :all: --find-links "$here/frameworks" "$@"  # check.py has compared their hashes
fi
install --no-deps --require-hashes --find-links "$here/wheels" --requirement "$here/requirements.txt"
# Two bundles may have one version of distrl: the newer one must win.
install --no-deps --require-hashes --find-links "$here/wheels" --force-reinstall --requirement "$here/distrl.txt"
echo "done. Try: $python -m distrl train --preset cartpole-impala --set learner.backend=jax"
