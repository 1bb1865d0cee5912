#!/bin/sh
# An image of this machine's own redis-server or valkey-server, where no registry can be reached.
#
#   compose/image.sh [NAME [SERVER]]        NAME: redlock-master    SERVER: redis-server or valkey-server on PATH
#   REDLOCK_IMAGE=redlock-master docker-compose -f compose/compose.yml up -d
#
# It holds the server, its client, a shell, and the libraries that the three need; nothing else.
set -eu

name=${1:-redlock-master}
server=${2:-$(command -v redis-server || command -v valkey-server || true)}
if [ -z "$server" ]; then
    echo "image.sh: no redis-server and no valkey-server on PATH: apt-get install redis-server, or valkey" >&2
    exit 69
fi
if ! server=$(command -v "$server"); then
    echo "image.sh: no such program: $2" >&2
    exit 64
fi
client=${server%-server}-cli
if [ ! -x "$client" ]; then
    echo "image.sh: no ${client##*/} beside $server: the health check needs it (Debian: redis-tools, valkey-tools)" >&2
    exit 69
fi

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
mkdir -p "$folder/root/bin" "$folder/root/data"
for program in "$server" "$client" "$(command -v sh)"; do
    # One file has several names on some systems and goes by the one that it is called with: so no readlink here.
    cp -L "$program" "$folder/root/bin/${program##*/}"
    # "libc.so.6 => /lib/.../libc.so.6 (0x...)" and "/lib64/ld-linux... (0x...)"; a static program has none.
    { ldd "$program" 2>/dev/null || true; } | tr ' \t' '\n\n' | grep '^/' >>"$folder/libraries" || true
done
sort -u "$folder/libraries" | while read -r library; do
    mkdir -p "$folder/root${library%/*}"
    cp -L "$library" "$folder/root$library"
done

# Docker gives a new volume the owner of the folder that it is mounted on, and 999 is who the server runs as.
tar -C "$folder/root" --owner=0 --group=0 --exclude=./data -cf "$folder/image.tar" .
tar -C "$folder/root" --owner=999 --group=999 -rf "$folder/image.tar" ./data
docker import \
    -c 'ENV PATH=/bin' -c 'USER 999:999' -c 'WORKDIR /data' -c "CMD [\"/bin/${server##*/}\"]" \
    "$folder/image.tar" "$name" >/dev/null
echo "$name"
