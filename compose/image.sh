#!/bin/sh
# Images of what this machine has, where no registry can be reached.
#
#   compose/image.sh [NAME [SERVER]]            for the masters; SERVER: redis-server or valkey-server on PATH
#   REDLOCK_IMAGE=redlock-master docker-compose -f compose/compose.yml up -d
#
#   compose/image.sh --worker [NAME [PYTHON]]   for app.yml and service.yml; PYTHON: python3 on PATH, with pip
#   REDLOCK_WORKER_IMAGE=redlock-worker ...
#   REDLOCK_WORKER_SITE names a folder that pip has installed the library into already, where it cannot do so now
#
# NAME is redlock-master and redlock-worker.  In an image are the program, a shell, and the libraries that they need.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
stop() { code=$1; shift; echo "image.sh: $*" >&2; exit "$code"; }

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
root=$folder/root
mkdir -p "$root/bin" "$root/tmp"
: >"$folder/libraries"

# One file has several names on some systems and goes by the one that it is called with: so the name stays.
program() { cp -L "$1" "$root/bin/${1##*/}"; needs "$1"; }

# "libc.so.6 => /lib/.../libc.so.6 (0x...)" and "/lib64/ld-linux... (0x...)"; a static program has none.
needs() { { ldd "$1" 2>/dev/null || true; } | tr ' \t' '\n\n' | grep '^/' | grep -v ':$' >>"$folder/libraries" || true; }

# pack NAME OWNED COMMAND: OWNED is a folder for user 999.  A new volume gets the owner of the folder that it is mounted on.
pack() {
    program "$(command -v sh)"
    sort -u "$folder/libraries" | while read -r library; do
        mkdir -p "$root${library%/*}"
        cp -L "$library" "$root$library"
    done
    mkdir -p "$root/$2"
    tar -C "$root" --owner=0 --group=0 --exclude="./$2" -cf "$folder/image.tar" .
    tar -C "$root" --owner=999 --group=999 -rf "$folder/image.tar" "./$2"
    docker import -c 'ENV PATH=/bin' -c "ENV PYTHONPATH=/site PYTHONHOME=${home:-/}" -c 'USER 999:999' -c "WORKDIR /$2" -c "CMD [\"$3\"]" \
        "$folder/image.tar" "$1" >/dev/null
    echo "$1"
}

if [ "${1:-}" = --worker ]; then
    python=$(command -v "${3:-python3}") || stop 64 "no such program: ${3:-python3}"
    if [ -n "${REDLOCK_WORKER_SITE:-}" ]; then
        cp -R "$REDLOCK_WORKER_SITE" "$root/site"
    else
        "$python" -m pip install --quiet --target "$root/site" "$here/..[prometheus]" >"$folder/pip" 2>&1 ||
            { cat "$folder/pip" >&2; stop 69 "$python could not install this library"; }
    fi
    # In a virtual environment it is a link; the program itself, and its library at the same place as here.
    real=$("$python" -c 'import os, sys; print(os.path.realpath(sys.executable))')
    program "$real"
    ln -sf "${real##*/}" "$root/bin/python3"
    # What pip has written begins with the name that Python has here.
    { echo '#!/bin/python3'; sed 1d "$root/site/bin/redlock-run"; } >"$root/bin/redlock-run"
    chmod 755 "$root/bin/redlock-run"
    home=$("$python" -c 'import sys; print(sys.base_prefix)')   # the program stands elsewhere in the image
    library=$("$python" -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')
    mkdir -p "$root$library"
    tar -C "$library" --exclude=test --exclude=__pycache__ --exclude=*-packages --exclude='config-*' -cf - . |
        tar -C "$root$library" -xf -
    find "$root$library" "$root/site" -name '*.so' >"$folder/modules"
    while read -r module; do needs "$module"; done <"$folder/modules"
    # Nothing of this run's own folder: those modules are in the image already.
    grep -v "^$folder" "$folder/libraries" >"$folder/outside"
    mv "$folder/outside" "$folder/libraries"
    pack "${2:-redlock-worker}" ledger /bin/python3
    exit
fi

name=${1:-redlock-master}
server=${2:-$(command -v redis-server || command -v valkey-server || true)}
[ -n "$server" ] || stop 69 "no redis-server and no valkey-server on PATH: apt-get install redis-server, or valkey"
server=$(command -v "$server") || stop 64 "no such program: $2"
client=${server%-server}-cli
[ -x "$client" ] || stop 69 "no ${client##*/} beside $server: the health check needs it (Debian: redis-tools, valkey-tools)"
program "$server"
program "$client"
program "$(command -v sleep)" # load.sh
pack "$name" data "/bin/${server##*/}"
