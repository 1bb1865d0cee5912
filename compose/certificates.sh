#!/bin/sh
# All that tls.yml needs, and tls-app.yml: an authority, a certificate for each of five masters, a user with a password,
# and for each start of a master the function library, and the password of who may load it.
#
#   compose/certificates.sh [FOLDER [DAYS]]        FOLDER: compose/secrets    DAYS: 365
#
# FOLDER/redlock.toml is for clients: redlock-check --config.  REDLOCK_PORTS as in compose.yml.
# The folder is for its owner alone.  What a master or a worker reads stands in a folder of its own, readable, for in
# the container there is another user; nobody else comes that far.
set -eu

folder=${1:-$(dirname "$0")/secrets}
days=${2:-365}
ports=${REDLOCK_PORTS:-640}
for program in openssl redlock-check; do
    if ! command -v "$program" >/dev/null; then
        echo "certificates.sh: $program is not on PATH" >&2
        exit 69
    fi
done
if [ -e "$folder" ]; then
    echo "certificates.sh: $folder exists; whoever uses it would be locked out by a new authority: remove it first" >&2
    exit 64
fi
rule=$(redlock-check --acl --functions 2>/dev/null) || exec redlock-check --acl --functions # which says why
rule=$(printf %s "$rule" | tr -d "'") # an aclfile has no quotes

umask 077
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
# Half a folder is worse than none.
trap 'rm -rf "$folder"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

quiet() { "$@" 2>"$folder/openssl.log" || { cat "$folder/openssl.log" >&2; exit 70; }; }

quiet openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days "$days" \
    -subj "/CN=redlock authority" -keyout "$folder/ca-key.pem" -out "$folder/ca.pem"

redlock-check --functions 2>/dev/null >"$folder/functions.lua"
# The servers see the hash alone.
hashed() { tr -d '\n' <"$1" | openssl dgst -sha256 -r | cut -d ' ' -f 1; }
openssl rand -hex 32 >"$folder/password"
openssl rand -hex 32 >"$folder/loader"
hash=$(hashed "$folder/password") loader=$(hashed "$folder/loader")

for number in 1 2 3 4 5; do
    master=$folder/master-$number
    mkdir "$master"
    cat >"$folder/extensions" <<END
subjectAltName = DNS:master-$number, DNS:localhost, IP:127.0.0.1
extendedKeyUsage = serverAuth
END
    quiet openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes \
        -subj "/CN=master-$number" -keyout "$master/key.pem" -out "$folder/request.pem"
    quiet openssl x509 -req -in "$folder/request.pem" -days "$days" -CA "$folder/ca.pem" -CAkey "$folder/ca-key.pem" \
        -CAcreateserial -extfile "$folder/extensions" -out "$master/certificate.pem"
    cp "$folder/ca.pem" "$folder/functions.lua" "$folder/loader" "$master"
    cat >"$master/users.acl" <<END
user default off
user health on nopass resetchannels -@all +ping
user loader on #$loader resetchannels -@all +function|load
user locks on #$hash $rule
END
    chmod 755 "$master"
    chmod 444 "$master"/*
done

cat >"$folder/redlock.toml" <<END
username = "locks"
password_file = "$folder/password"
tls_ca = "$folder/ca.pem"
masters = [
    { name = "master-1", url = "rediss://127.0.0.1:${ports}1" },
    { name = "master-2", url = "rediss://127.0.0.1:${ports}2" },
    { name = "master-3", url = "rediss://127.0.0.1:${ports}3" },
    { name = "master-4", url = "rediss://127.0.0.1:${ports}4" },
    { name = "master-5", url = "rediss://127.0.0.1:${ports}5" },
]
END
# For tls-app.yml: they reach their masters at other addresses.
mkdir "$folder/worker"
cp "$folder/ca.pem" "$folder/worker/ca.pem"
masters=
for number in 1 2 3 4 5; do
    masters=$masters,master-$number=rediss://locks:$(cat "$folder/password")@master-$number:6379?ssl_ca_certs=/secrets/ca.pem
done
echo "${masters#,}" >"$folder/worker/masters"
chmod 755 "$folder/worker"
chmod 444 "$folder/worker"/*
rm -f "$folder/request.pem" "$folder/extensions" "$folder/functions.lua" "$folder/loader" "$folder/openssl.log" "$folder/ca.srl"
trap - EXIT
echo "$folder"
