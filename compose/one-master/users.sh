#!/bin/sh
# The users of one master: prints what belongs into /etc/redlock/users.acl.
#
#   compose/one-master/users.sh PASSWORD_FILE [LOADER_PASSWORD_FILE]
#
# `locks` has the rights that redlock-check --acl prints, and the password that is the first line of PASSWORD_FILE; the
# server sees its hash alone.  `health` may say PING and nothing else.  All other users are off.  With a second file `locks` may
# run no scripts, but call functions (Redis 7, Valkey), and `loader` may load these (load.sh) and nothing else.
set -eu

file=${1:?users.sh: which file has the password? users.sh PASSWORD_FILE}
hashed() {
    password=$(head -n 1 "$1")
    if [ -z "$password" ]; then
        echo "users.sh: $1 is empty: write a password into it, for example openssl rand -hex 32 >$1" >&2
        exit 64
    fi
    printf %s "$password" | sha256sum | cut -d ' ' -f 1
}
rule=$(redlock-check --acl ${2:+--functions} 2>/dev/null) || exec redlock-check --acl # which says why
hash=$(hashed "$file")
loader=${2:+$(hashed "$2")}
echo "user default off"
echo "user health on nopass resetchannels -@all +ping"
[ -z "$loader" ] || echo "user loader on #$loader resetchannels -@all +function|load"
printf 'user locks on #%s %s\n' "$hash" "$(printf %s "$rule" | tr -d "'")" # an aclfile has no quotes
