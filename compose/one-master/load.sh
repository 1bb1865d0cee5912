#!/bin/sh
# Loads the function library into a master that has just been started, for users who may run no scripts (R44).
#
#   compose/one-master/load.sh [FOLDER [OPTION...]]      FOLDER: /etc/redlock    OPTION: of redis-cli, -p 6390
#
# In the folder: functions.lua, as redlock-check --functions prints it, and, where masters have users, `loader`: the
# password of the user who may load it.  Without the first one there is nothing to do.
set -eu

folder=${1:-/etc/redlock}
[ -e "$folder/functions.lua" ] || exit 0
[ $# = 0 ] || shift
[ $# -gt 0 ] || set -- -p 6390
client=$(command -v valkey-cli || command -v redis-cli)
if [ -e "$folder/loader" ]; then
    read -r REDISCLI_AUTH <"$folder/loader" || [ -n "$REDISCLI_AUTH" ]
    export REDISCLI_AUTH
    set -- "$@" --no-auth-warning --user loader
fi
for _ in 1 2 3 4 5 6 7 8 9 10; do
    said=$("$client" "$@" -x FUNCTION LOAD REPLACE <"$folder/functions.lua" 2>&1) || true
    case $said in redlock_*) exit 0 ;; esac
    sleep 1
done
echo "load.sh: $said" >&2
exit 69
