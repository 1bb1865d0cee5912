#!/usr/bin/env bash
# Runs a command where a Docker daemon answers, and takes back what the command has made there, however it ends.
#
#   compose/daemon.sh [--folder FOLDER] COMMAND...
#   compose/daemon.sh --look        starts nothing: ends with 0 if it could, else says what is missing
#
# The daemon that runs is used.  Where none does and this is root, one is started in namespaces of its own: its networks,
# mounts and containers end with it, and no registry can be reached from there.  Linux.
#
# COMMAND finds in its environment
#   REDLOCK_PROJECT    a name for Compose (-p) that nobody else has: what has this label is removed at the end, and so are
#                      images that are called REDLOCK_PROJECT-...
#   REDLOCK_COMPOSE    `docker compose` or `docker-compose`
#   REDLOCK_PORTS      as in compose.yml: five ports that were free, unless it was set
#   TMPDIR             a folder that is removed at the end: FOLDER, with what is in there already, or a new one
#
# Exit: that of COMMAND; 1, something was left behind; 69, something is missing.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
PATH=$PATH:/usr/sbin:/sbin

missing() { printf 'daemon.sh: %s\n' "$*" >&2; exit 69; }
runs() { docker info >/dev/null 2>&1; }

# When PID was started, in ticks; nothing, if it has ended, buried or not.  A number alone may be somebody else's by now.
began() {
    local stat fields
    stat=$(cat "/proc/$1/stat" 2>/dev/null) || return 0
    read -r -d '' -a fields <<<"${stat##*) }" || true
    [ "${fields[0]}" = Z ] || echo "${fields[19]}"
}

look() {
    local program said
    command -v docker >/dev/null || missing "no docker (Debian: apt-get install docker.io docker-compose)"
    if docker compose version >/dev/null 2>&1; then
        export REDLOCK_COMPOSE="docker compose"
    elif command -v docker-compose >/dev/null; then
        export REDLOCK_COMPOSE=docker-compose
    else
        missing "no Compose, neither \`docker compose\` nor docker-compose (Debian: apt-get install docker-compose)"
    fi
    for program in setpriv setsid; do
        command -v "$program" >/dev/null || missing "no $program (Linux: util-linux)"
    done
    if runs; then private=; return; fi
    private=1
    [ "$(id -u)" = 0 ] || missing "no Docker daemon answers, and only root can start one"
    for program in dockerd iptables ip mount unshare; do
        command -v "$program" >/dev/null ||
            missing "no Docker daemon answers, and there is no $program to start one (Debian: apt-get install docker.io iptables iproute2)"
    done
    said=$(unshare --net --mount --pid --fork true 2>&1) ||
        missing "no Docker daemon answers, and none can be started here: $said"
}

# -- what is taken back -----------------------------------------------------------------------------

of_project() { "$@" --quiet --filter "label=com.docker.compose.project=$REDLOCK_PROJECT"; }
images() { docker image ls --quiet --filter "reference=$REDLOCK_PROJECT-*"; }

remove() {
    of_project docker ps --all | xargs -r docker rm --force --volumes
    of_project docker volume ls | xargs -r docker volume rm --force
    of_project docker network ls | xargs -r docker network rm
    images | xargs -r docker image rm --force
    left=$(of_project docker ps --all && of_project docker volume ls && of_project docker network ls && images) || return
    [ -z "$left" ]
}

# What somebody was about to make when it was killed comes a moment later.
remove_all() {
    local again=0
    until remove >"$folder/removed" 2>&1; do
        again=$((again + 1))
        if [ "$again" = 20 ]; then
            cat "$folder/removed" >&2
            echo "daemon.sh: left behind: $left" >&2
            return 1
        fi
        sleep 0.5
    done
}

# leave: COMMAND has ended, or ends now, and nothing is left.  Where the daemon is ours, COMMAND is the first process of
# its namespaces, with which the kernel ends all others.
leave() {
    local status=0 now
    now=$(began "$command")
    if [ -z "$now" ] || [ "$now" = "$command_began" ]; then
        kill -KILL -- "-$command" 2>/dev/null || true
    fi
    if [ -z "$private" ]; then
        remove_all || status=1
    fi
    # What was mounted went with the last process, which may take a moment; so do the groups that it was in.
    for _ in $(seq 100); do
        rm -rf --one-file-system "$folder" 2>/dev/null || true
        find /sys/fs/cgroup -depth -type d -path "*/${folder##*/}*" -exec rmdir {} \; 2>/dev/null || true
        if [ ! -e "$folder" ] && [ -z "$(find /sys/fs/cgroup -type d -name "${folder##*/}" 2>/dev/null)" ]; then
            return "$status"
        fi
        sleep 0.1
    done
    echo "daemon.sh: could not remove all of $folder" >&2
    return 1
}

# -- the ways in ------------------------------------------------------------------------------------

case ${1:-} in
    --look)
        look
        exit
        ;;
    --inside)   # FOLDER COMMAND...: the first process of new namespaces
        folder=$2
        shift 2
        ip link set lo up
        # Nothing of the machine's own: a containerd that runs, whose children would not end with us, or a configuration; and
        # nothing of ours is left there.
        mount -t tmpfs tmpfs /run
        [ ! -d /etc/docker ] || mount -t tmpfs tmpfs /etc/docker
        dockerd --data-root "$folder/data" --exec-root "$folder/exec" --pidfile "$folder/pid" --host "$DOCKER_HOST" \
            --exec-opt native.cgroupdriver=cgroupfs --cgroup-parent "/${folder##*/}" >"$folder/log" 2>&1 &
        daemon=$!
        until runs; do
            kill -0 "$daemon" 2>/dev/null || { tail -n 20 "$folder/log" >&2; missing "dockerd ended at once"; }
            [ "$SECONDS" -lt 60 ] || { tail -n 20 "$folder/log" >&2; missing "dockerd does not answer after 60 s"; }
            sleep 0.1
        done
        status=0
        "$@" || status=$?
        exit "$status"
        ;;
    --after)    # PID BEGAN COMMAND BEGAN PRIVATE FOLDER: when PID has been killed, so that it could not take back anything itself
        command=$4 command_began=$5 private=$6 folder=$7
        while [ "$(began "$2")" = "$3" ]; do sleep 0.5; done
        leave
        exit
        ;;
    --folder)
        folder=$2
        shift 2
        ;;
esac
[ "$#" -gt 0 ] || { echo "usage: compose/daemon.sh [--folder FOLDER] COMMAND..." >&2; exit 64; }

free_ports() {
    local first number
    while :; do
        first=$((RANDOM % 2000 + 1000))     # 10001 to 29995: below those of outgoing connections
        for number in 1 2 3 4 5; do
            ! (exec 3<>"/dev/tcp/127.0.0.1/$first$number") 2>/dev/null || continue 2
        done
        echo "$first"
        return
    done
}

look
folder=${folder:-$(mktemp -d "${TMPDIR:-/tmp}/redlock-compose-XXXXXX")}
name=${folder##*/}
export TMPDIR=$folder REDLOCK_PROJECT=${name,,}
export REDLOCK_PORTS=${REDLOCK_PORTS:-$(free_ports)}
place=()
if [ -n "$private" ]; then
    echo "-- starting a Docker daemon in namespaces of its own"
    export DOCKER_HOST=unix://$folder/docker.sock
    place=(unshare --net --mount --pid --fork --kill-child --mount-proc "$here/daemon.sh" --inside "$folder")
fi

# A group of its own, to be ended as one: Ctrl-C in a terminal is for us.  With & bash would close the standard input and
# have these signals ignored by whatever runs in there.
self_began=$(began $$)
setpriv --pdeathsig KILL setsid env --default-signal=INT,QUIT "${place[@]}" "$@" <&0 &
command=$!
# At once: if we are killed from now on, this process takes everything back.
setsid "$here/daemon.sh" --after $$ "$self_began" "$command" "$(began "$command")" "$private" "$folder" </dev/null >/dev/null 2>&1 &
after=$!
command_began=$(began "$command")
finish() {
    local status=$?
    trap '' INT TERM HUP
    leave || status=1
    kill -KILL "$after" 2>/dev/null || true
    wait 2>/dev/null || true
    exit "$status"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
trap 'exit 129' HUP
status=0
wait "$command" || status=$?
exit "$status"
