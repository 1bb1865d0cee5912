#!/bin/sh
# What kustomization.yaml makes Secrets of: an authority, one certificate for the five masters, their users, a password,
# and redlock.toml for clients; and for each start of a master the function library, and the password of who may load it.
#
#   compose/kubernetes/secrets.sh [FOLDER [DAYS]]       FOLDER: compose/kubernetes/secrets    DAYS: 365
#
# All pods of a StatefulSet have one template, so they share one certificate: for any name in front of
# masters.redlock.svc.cluster.local.  The authority's key is made, used once, and removed.
set -eu

folder=${1:-$(dirname "$0")/secrets}
days=${2:-365}
domain=masters.redlock.svc.cluster.local
for program in openssl redlock-check; do
    if ! command -v "$program" >/dev/null; then
        echo "secrets.sh: $program is not on PATH" >&2
        exit 69
    fi
done
if [ -e "$folder" ]; then
    echo "secrets.sh: $folder exists; whoever uses it would be locked out by a new authority: remove it first" >&2
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
    -subj "/CN=redlock authority" -keyout "$folder/ca.key" -out "$folder/ca.crt"
cat >"$folder/extensions" <<END
subjectAltName = DNS:*.$domain, DNS:localhost
extendedKeyUsage = serverAuth
END
quiet openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes \
    -subj "/CN=redlock masters" -keyout "$folder/tls.key" -out "$folder/request.pem"
quiet openssl x509 -req -in "$folder/request.pem" -days "$days" -CA "$folder/ca.crt" -CAkey "$folder/ca.key" \
    -CAcreateserial -extfile "$folder/extensions" -out "$folder/tls.crt"

openssl rand -hex 32 | tr -d '\n' >"$folder/password"
# The servers see the hash alone.
hash=$(openssl dgst -sha256 -r <"$folder/password" | cut -d ' ' -f 1)
openssl rand -hex 32 | tr -d '\n' >"$folder/loader"
loader=$(openssl dgst -sha256 -r <"$folder/loader" | cut -d ' ' -f 1)
redlock-check --functions 2>/dev/null >"$folder/functions.lua"
cat >"$folder/users.acl" <<END
user default off
user health on nopass resetchannels -@all +info
user loader on #$loader resetchannels -@all +function|load
user locks on #$hash $rule
END

cat >"$folder/redlock.toml" <<END
username = "locks"
password_file = "/etc/redlock/password"
tls_ca = "/etc/redlock/ca.crt"
max_ttl = 60                            # minReadySeconds of the masters
masters = [
    "rediss://master-0.$domain:6379",
    "rediss://master-1.$domain:6379",
    "rediss://master-2.$domain:6379",
    "rediss://master-3.$domain:6379",
    "rediss://master-4.$domain:6379",
]
END
rm -f "$folder/ca.key" "$folder/request.pem" "$folder/extensions" "$folder/openssl.log" "$folder/ca.srl" "$folder/.srl"
trap - EXIT
echo "$folder"
