#!/bin/sh
# The users of one master: prints what belongs into /etc/redlock/users.acl.
#
#   compose/one-master/users.sh PASSWORD_FILE
#
# `locks` has the rights that redlock-check --acl prints, and the password that is the first line of PASSWORD_FILE; the
# server sees its hash alone.  `health` may say PING and nothing else.  Nobody else comes in.
set -eu

file=${1:?users.sh: which file has the password? users.sh PASSWORD_FILE}
password=$(head -n 1 "$file")
if [ -z "$password" ]; then
    echo "users.sh: $file is empty: write a password into it, for example openssl rand -hex 32 >$file" >&2
    exit 64
fi
rule=$(redlock-check --acl 2>/dev/null) || exec redlock-check --acl # which says why
hash=$(printf %s "$password" | sha256sum | cut -d ' ' -f 1)
echo "user default off"
echo "user health on nopass resetchannels -@all +ping"
printf 'user locks on #%s %s\n' "$hash" "$(printf %s "$rule" | tr -d "'")" # an aclfile has no quotes
