#!/usr/bin/env bash
# Put pillow-simd in the place of Pillow in a virtual environment: scripts/install_pillow_simd.sh [PYTHON]
#
# PYTHON is the environment's interpreter, .venv/bin/python if none is given. pillow-simd is Pillow with faster scaling, built
# here for this machine's instructions. It is built before Pillow is taken away, so that a build that fails changes nothing.
# Run it again after anything that installs Pillow anew: both lie in the same folder, and the last one wins.
set -euo pipefail

python=${1:-"$(dirname "$0")/../.venv/bin/python"}
fail() { echo "$*" >&2; exit 1; }

"$python" -c 'import sys; sys.exit(sys.prefix == sys.base_prefix)' 2>/dev/null \
  || fail "expected the Python of a virtual environment, got $python; make one with python3 -m venv DIR and name DIR/bin/python"

in_use() { "$python" -c 'import PIL; print(PIL.__version__)' 2>/dev/null || true; }
before=$(in_use)
if [[ $before == *.post* ]]; then
    echo "pillow-simd $before is there already"
    exit 0
fi

compiler=${CC:-cc}
command -v "${compiler%% *}" >/dev/null || fail "expected a C compiler, got none named ${compiler%% *}; install gcc, or name one in CC"
for header in jpeglib.h zlib.h Python.h; do
    include=$("$python" -c 'import sysconfig; print(sysconfig.get_path("include"))')
    printf '#include <stdio.h>\n#include <%s>\n' "$header" | $compiler -I"$include" -E - >/dev/null 2>&1 \
      || fail "expected the C header $header, got none; install the headers of libjpeg, zlib and Python (Debian: apt install libjpeg62-turbo-dev or libjpeg-dev, zlib1g-dev, python3-dev)"
done
echo '#include <webp/decode.h>' | $compiler -E - >/dev/null 2>&1 \
  || echo "note: no header webp/decode.h (libwebp-dev), so this pillow-simd will not read or write WebP" >&2

if grep -qw avx2 /proc/cpuinfo 2>/dev/null; then
    compiler="$compiler -mavx2"
fi
wheels=$(mktemp -d)
trap 'rm -rf "$wheels"' EXIT
CC=$compiler "$python" -m pip --disable-pip-version-check wheel --quiet --no-cache-dir --no-deps --no-binary pillow-simd \
  --wheel-dir "$wheels" pillow-simd || fail "pillow-simd could not be built; ${before:+Pillow $before is still there}"
if [[ -n $before ]]; then
    "$python" -m pip --disable-pip-version-check uninstall --quiet --yes pillow
fi
"$python" -m pip --disable-pip-version-check install --quiet --no-deps --no-index "$wheels"/*.whl

after=$(in_use)
[[ $after == *.post* ]] || fail "expected pillow-simd after its installation, got ${after:-no PIL at all}; install Pillow again: $python -m pip install pillow"
echo "pillow-simd $after is in the place of ${before:+Pillow }${before:-nothing}"
