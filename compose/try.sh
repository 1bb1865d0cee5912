#!/usr/bin/env bash
# Starts the five masters for real, breaks some, and looks at what redlock-check says.  Leaves nothing behind.
#
#   compose/try.sh [volatile] [tls] [app] [service]   compose.yml, with these files over it
#
# app: the payment workers as well, whose ledger is looked through again and again.  service: three replicas of which one
# works, and who works is killed.
#
# daemon.sh finds a Docker daemon, or starts one, and takes everything back.  Without REDLOCK_IMAGE the masters are this
# machine's own server: image.sh.
#
# Exit: 0, all was as it should be; 1, something was not; 64, usage; 69, something is missing.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

say() { printf '%s\n' "-- $*"; }
fail() { printf 'try.sh: %s\n' "$*" >&2; exit 1; }
missing() { printf 'try.sh: %s\n' "$*" >&2; exit 69; }

inside=
if [ "${1:-}" = --inside ]; then inside=1; shift; fi
files=(-f "$here/compose.yml")
tls= volatile= app= service=
for over in "$@"; do
    case $over in
        tls) tls=1 ;;
        volatile) volatile=1 ;;
        app) app=1 ;;
        service) service=1 ;;
        *) echo "usage: compose/try.sh [volatile] [tls] [app] [service]" >&2; exit 64 ;;
    esac
    files+=(-f "$here/$over.yml")
done
[ -z "$tls" ] || [ -z "$app" ] || files+=(-f "$here/tls-app.yml")
[ -z "$tls" ] || [ -z "$service" ] || { echo "try.sh: service goes without tls: it has no certificate" >&2; exit 64; }

if [ -z "$inside" ]; then
    "$here/daemon.sh" --look
    command -v redlock-check >/dev/null || missing "no redlock-check on PATH: \`make compose\` sees to that"
    folder=$(mktemp -d "${TMPDIR:-/tmp}/redlock-compose-XXXXXX")
    if [ -n "$app$service" ] && [ -z "${REDLOCK_WORKER_IMAGE:-}" ]; then
        # Before a daemon of our own is started: in there is no network but its own.
        trap 'rm -rf "$folder"' EXIT
        trap 'exit 130' INT
        trap 'exit 143' TERM
        trap 'exit 129' HUP
        export REDLOCK_WORKER_SITE=$folder/site
        python3 -m pip install --quiet --target "$REDLOCK_WORKER_SITE" "$here/..[prometheus]" >"$folder/pip" 2>&1 ||
            { cat "$folder/pip" >&2; missing "pip could not install this library for the workers"; }
        trap - EXIT INT TERM HUP
    fi
    exec "$here/daemon.sh" --folder "$folder" "$here/try.sh" --inside "$@"
fi

# -- the masters ------------------------------------------------------------------------------------

project=$REDLOCK_PROJECT
read -r -a compose <<<"$REDLOCK_COMPOSE"
work=$TMPDIR
export REDLOCK_SECRETS=$work/secrets
if [ -z "${REDLOCK_IMAGE:-}" ]; then
    say "making an image of this machine's own server"
    export REDLOCK_IMAGE=$project-master
    "$here/image.sh" "$REDLOCK_IMAGE" >/dev/null
fi
if [ -n "$app$service" ] && [ -z "${REDLOCK_WORKER_IMAGE:-}" ]; then
    say "making an image of this machine's own Python with this library"
    export REDLOCK_WORKER_IMAGE=$project-worker
    "$here/image.sh" --worker "$REDLOCK_WORKER_IMAGE" >/dev/null
fi
if [ -n "$tls" ]; then
    "$here/certificates.sh" "$REDLOCK_SECRETS" 2 >/dev/null
    target=(--config "$REDLOCK_SECRETS/redlock.toml")
else
    export REDLOCK_FUNCTIONS=$work/functions
    mkdir "$REDLOCK_FUNCTIONS"
    redlock-check --functions >"$REDLOCK_FUNCTIONS/functions.lua" 2>"$work/said"
    target=()
    for number in 1 2 3 4 5; do target+=("master-$number=redis://127.0.0.1:$REDLOCK_PORTS$number"); done
fi

in_compose() { "${compose[@]}" -p "$project" "${files[@]}" "$@" >"$work/compose" 2>&1 || { cat "$work/compose" >&2; fail "compose $1"; }; }
container() { docker ps --all --quiet --filter "label=com.docker.compose.project=$project" --filter "label=com.docker.compose.service=master-$1"; }
healthy() { docker ps --quiet --filter "label=com.docker.compose.project=$project" --filter health=healthy | wc -l; }

await_health() {
    local until=$((SECONDS + 120))
    until [ "$(healthy)" = "$1" ]; do
        [ "$SECONDS" -lt "$until" ] || { docker ps --all; in_compose logs; cat "$work/compose"; fail "$(healthy) masters are healthy after 120 s, not $1"; }
        sleep 0.5
    done
    say "$1 healthy masters"
}

# check CODE WORD: redlock-check must end with this exit code, and say this.  A machine that is busy may lose the lock that
# it tries; what is wrong with masters stays.
check() {
    local status until=$((SECONDS + 90))
    while :; do
        status=0
        redlock-check "${target[@]}" "${@:3}" >"$work/check" 2>&1 || status=$?
        [ "$status" != "$1" ] && [ "$SECONDS" -lt "$until" ] || break
    done
    cat "$work/check"
    [ "$status" = "$1" ] || fail "redlock-check ended with $status, not with $1"
    grep -q -- "$2" "$work/check" || fail "redlock-check does not say '$2'"
}

# loaded: each master has the functions.  With users that is what `check` says, for theirs may run no scripts.
loaded() {
    local library number until=$((SECONDS + 60))
    [ -z "$tls" ] || return 0
    read -r _ library <"$REDLOCK_FUNCTIONS/functions.lua"
    for number in 1 2 3 4 5; do
        # shellcheck disable=SC2016
        until docker exec "$(container $number)" sh -c '"$(command -v valkey-cli || command -v redis-cli)" -e fcall "$1" 0' \
            sh "${library#name=}" >"$work/library" 2>&1; do
            [ "$SECONDS" -lt "$until" ] || { cat "$work/library"; fail "master-$number has no functions"; }
            sleep 0.5
        done
    done
    say "all masters have the functions"
}

workers() { docker ps --quiet --filter "label=com.docker.compose.project=$project" --filter label=com.docker.compose.service=worker; }

writable="import sqlite3; sqlite3.connect('/ledger/ledger.db', timeout=10).execute('BEGIN IMMEDIATE')"

# The workers have paid more than at the last look, and nothing was lost.
paid=0
payments() {
    local now status until=$((SECONDS + 120))
    while :; do
        status=0
        docker exec "$(workers | head -n 1)" python3 /worker.py audit /ledger/ledger.db >"$work/audit" 2>&1 || status=$?
        ! grep -q LOST "$work/audit" || { cat "$work/audit"; fail "a payment was lost"; }
        now=$(awk '$1 == "account" { sum += $5 } END { print sum + 0 }' "$work/audit")
        # No answer is no verdict: a container that is short of everything may kill who looks at the ledger.
        [ "$status" != 0 ] || [ "$now" -lt $((paid + 10)) ] || break
        [ "$SECONDS" -lt "$until" ] || { cat "$work/audit"; in_compose logs worker; tail -n 30 "$work/compose"; fail "no more payments after 120 s; the last audit ended with $status"; }
        sleep 0.5
    done
    cat "$work/audit"
    paid=$now
}

# -- the service --------------------------------------------------------------------------------------

replicas() { docker ps --quiet --filter "label=com.docker.compose.project=$project" --filter label=com.docker.compose.service=consumer; }

# Those in which the command runs.  Their names are those of the containers.
working() {
    local replica
    for replica in $(replicas); do
        # Read to its end: a pipe that is closed early would be a failure.
        ! docker top "$replica" -eo pid,args 2>/dev/null | grep -E '^ *[0-9]+ +python3 /consumer.py work' >/dev/null || echo "$replica"
    done
}

# succeeded TERM OTHER: in a later term than TERM another one than OTHER works, alone.  Its term is in $term then, and it in $leader.
term=0 leader=
succeeded() {
    local now last until=$((SECONDS + 120))
    while :; do
        now=$(working)
        if [ -n "$now" ]; then
            docker exec "$(replicas | head -n 1)" python3 /consumer.py audit /ledger/consumed >"$work/terms" 2>&1 ||
                ! grep -q MIXED "$work/terms" || { cat "$work/terms"; fail "two worked at the same time"; }
            last=$(grep ^term "$work/terms" | tail -n 1 | tr -d ':,') || last=
            read -r _ term leader _ <<<"${last:-term 0 nobody}"
            [ "$now" != "$leader" ] || [ "$term" -le "$1" ] || [ "$leader" = "$2" ] || break
        fi
        [ "$SECONDS" -lt "$until" ] || { cat "$work/terms" 2>/dev/null || true; in_compose logs consumer; tail -n 30 "$work/compose"; fail "'$now' work after 120 s, the last one was $leader"; }
        sleep 0.2
    done
    say "one of $(replicas | wc -l) works: $leader, in term $term"
}

# A leader without a quorum ends its command before its lease does, so within the TTL.
await_nobody() {
    local now until=$((SECONDS + 30))
    while now=$(working) && [ -n "$now" ]; do
        [ "$SECONDS" -lt "$until" ] || { in_compose logs consumer; tail -n 30 "$work/compose"; fail "'$now' work after 30 s without a quorum"; }
        sleep 0.2
    done
    say "nobody works"
}

in_compose up -d
await_health 5
loaded

if [ -n "$volatile" ]; then
    say "they keep nothing, and are young: no vote yet"
    check 2 recently-restarted
    say "the same for clients whose longest TTL is five seconds, six seconds later"
    sleep 6
    old=(--max-ttl 5)
else
    old=()
fi
check 0 OK "${old[@]}"

if [ -n "$app" ]; then
    [ "$(workers | wc -l)" = 3 ] || fail "there are $(workers | wc -l) workers, not 3"
    say "three workers pay"
    payments
fi

if [ -n "$service" ]; then
    [ "$(replicas | wc -l)" = 3 ] || fail "there are $(replicas | wc -l) replicas, not 3"
    say "three replicas stand for election"
    succeeded 0 nobody
    say "it is killed"
    docker kill "$leader" >/dev/null
    succeeded "$term" "$leader"
    say "the next one is stopped: its command has ended before another one works"
    stopped=$leader
    docker kill -s STOP "$stopped" >/dev/null
    succeeded "$term" "$stopped"
    docker kill -s CONT "$stopped" >/dev/null
    say "and that one is told to end: another one takes over at once"
    docker stop "$leader" >/dev/null
    succeeded "$term" "$leader"
    in_compose up -d
    await_health 5
fi

say "one is killed"
docker kill "$(container 5)" >/dev/null
check 1 unreachable "${old[@]}"

say "another one hangs: locks work, and nothing more may happen"
docker kill -s STOP "$(container 4)" >/dev/null
check 1 too-few "${old[@]}"
if [ -n "$app" ]; then
    say "the workers go on; one of them is stopped, for longer than its lock lives, and goes on as if nothing had been"
    payments
    asleep=$(workers | tail -n 1)
    docker kill -s STOP "$asleep" >/dev/null
    # Not while it writes: the ledger is a file, with nobody who would end the transaction of a client that is silent.
    until docker exec "$(workers | head -n 1)" python3 -c "$writable" >"$work/writable" 2>&1; do
        [ "$SECONDS" -lt 300 ] || { cat "$work/writable"; fail "the ledger stays locked"; }
        docker kill -s CONT "$asleep" >/dev/null
        sleep 0.5
        docker kill -s STOP "$asleep" >/dev/null
    done
    sleep 6
    payments
    docker kill -s CONT "$asleep" >/dev/null
    payments
fi
docker kill -s CONT "$(container 4)" >/dev/null

say "three are dead"
docker kill "$(container 4)" "$(container 3)" >/dev/null
check 2 too-few "${old[@]}"
if [ -n "$service" ]; then
    say "so the service loses its term, and its command is ended"
    await_nobody
fi

say "and started again"
in_compose start
await_health 5
loaded
if [ -n "$volatile" ]; then
    say "they have forgotten everything, and say so"
    check 2 recently-restarted --max-ttl 60  # with five seconds they might vote again before we look
else
    say "they have forgotten nothing, so they vote at once"
    check 0 OK
fi
if [ -n "$app" ]; then
    [ -n "$volatile" ] || payments
    say "what workers were told, if anything"
    in_compose logs --no-color worker
    grep -c "nothing was paid\|not acquired" "$work/compose" || true
fi
if [ -n "$service" ]; then
    say "the masters were gone for a while: somebody works again, and what all of them have written was written one after the other"
    succeeded "$term" nobody
    docker exec "$(replicas | head -n 1)" python3 /consumer.py audit /ledger/consumed || fail "two worked at the same time"
fi
say "all was as it should be"
