#!/bin/sh
# Loads the function library into a master that has just been started, for users who may run no scripts (R44).
#
#   compose/one-master/load.sh [FOLDER [PORT]]      FOLDER: /etc/redlock    PORT: 6390
#
# In the folder: functions.lua, as redlock-check --functions prints it, and `loader`, the password of the user who may
# load it.  Without the first one there is nothing to do.
set -eu

folder=${1:-/etc/redlock}
[ -e "$folder/functions.lua" ] || exit 0
client=$(command -v valkey-cli || command -v redis-cli)
REDISCLI_AUTH=$(head -n 1 "$folder/loader")
export REDISCLI_AUTH
for _ in 1 2 3 4 5 6 7 8 9 10; do
    said=$("$client" -p "${2:-6390}" --no-auth-warning --user loader -x FUNCTION LOAD REPLACE <"$folder/functions.lua" 2>&1) || true
    case $said in redlock_*) exit 0 ;; esac
    sleep 1
done
echo "load.sh: $said" >&2
exit 69
