#!/usr/bin/env bash
# One container to work in: starts it, opens a shell in it, stops it.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=docker/engine.sh
. "$here/engine.sh"

usage() {
    cat <<END
usage: into_docker.sh start [--with-root] | into [COMMAND...] | stop | --help

  start         start the container, with a user like you in it
    --with-root   be root in it instead
  into          open a shell in it, or run a command
  stop          stop it and remove it; the state directory and your files stay

Variables:
  IPU_IMAGE_NAME      the image (now: $IPU_IMAGE_NAME)
  IPU_CONTAINER_NAME  the container (now: $IPU_CONTAINER_NAME)
  IPU_ENGINE          docker or podman (default: docker if there is one)
  IPU_WORKSPACE       directory that the container has as /workspace (default: where you are)
  SOFTIPU_HOME        state directory to share (default: your own)

Which IPUs: IPUOF_CONFIG_PATH, IPUOF_VIPU_API_*, SOFTIPU_SYSTEM, from the environment or from a
file envs.sh beside this script (softipu's SDK has a template: envs.sh.template).
END
}

wrong() {
    echo "into_docker.sh: $1" >&2
    usage >&2
    exit 2
}

# running, exited, … or nothing if there is no such container
state_of_container() {
    ask container inspect --format '{{.State.Status}}' "$IPU_CONTAINER_NAME" 2>/dev/null || true
}

start() {
    local with_root=
    case "$#:${1:-}" in
    0:) ;;
    1:--with-root) with_root=1 ;;
    *) wrong "start takes --with-root only." ;;
    esac
    check_engine
    local state
    state=$(state_of_container)
    case $state in
    running)
        echo "$IPU_CONTAINER_NAME is running already; into_docker.sh into."
        return
        ;;
    ?*)
        fail "$IPU_CONTAINER_NAME exists, but is $state." "into_docker.sh stop removes it."
        ;;
    esac
    check_image
    if [ -f "$here/envs.sh" ]; then
        # shellcheck disable=SC1091  # the user's own file
        . "$here/envs.sh"
    fi
    local home=${SOFTIPU_HOME:-${XDG_STATE_HOME:-$HOME/.local/state}/softipu}
    # Made here: the engine would make it as root.
    (umask 077 && mkdir -p "$home")
    home=$(realpath "$home")
    local workspace
    workspace=$(realpath "${IPU_WORKSPACE:-$PWD}") || fail "IPU_WORKSPACE=${IPU_WORKSPACE:-} is no directory."
    local options=(
        --detach --name "$IPU_CONTAINER_NAME" --hostname "$IPU_CONTAINER_NAME"
        --net=host --ipc=host --ulimit=memlock=-1:-1 --cap-add=IPC_LOCK
        --volume "$home:/var/lib/softipu" --env SOFTIPU_HOME=/var/lib/softipu
        --volume "$workspace:/workspace" --workdir /workspace
    )
    if [ -n "${IPUOF_CONFIG_PATH:-}" ]; then
        [ -r "$IPUOF_CONFIG_PATH" ] || fail "IPUOF_CONFIG_PATH=$IPUOF_CONFIG_PATH cannot be read."
        options+=(--volume "$(realpath "$IPUOF_CONFIG_PATH"):/etc/ipuof.conf.d/ipuof.conf:ro"
            --env IPUOF_CONFIG_PATH=/etc/ipuof.conf.d/ipuof.conf)
    fi
    local name
    for name in IPUOF_VIPU_API_HOST IPUOF_VIPU_API_PORT IPUOF_VIPU_API_PARTITION_ID \
        IPUOF_VIPU_API_GCD_ID IPUOF_VIPU_API_TIMEOUT SOFTIPU_VIPU_ACCESS_KEY SOFTIPU_SYSTEM; do
        # By name: what is a secret must not be seen in the list of processes.
        [ -z "${!name:-}" ] || { export "${name?}" && options+=(--env "$name"); }
    done
    local uid gid user
    uid=$(id -u) gid=$(id -g) user=$(id -un)
    if [ -n "$with_root" ]; then
        options+=(--user 0:0 --label softipu.user=root)
    else
        [ "$uid" -ne 0 ] || fail "you are root yourself." "Say so: into_docker.sh start --with-root."
        options+=(--user "$uid:$gid" --label "softipu.user=$user")
        # Podman without root: you inside are you outside.
        [ "$(basename "$IPU_ENGINE")" != podman ] || options+=(--userns=keep-id)
    fi
    # The shell ends at once when the engine says stop; sleep alone would be waited for.
    "$IPU_ENGINE" run "${options[@]}" "$IPU_IMAGE_NAME" bash -c 'trap exit TERM INT; sleep infinity & wait' \
        >/dev/null || fail "$IPU_ENGINE could not start $IPU_CONTAINER_NAME."
    if [ -z "$with_root" ] &&
        ! ask exec --user 0:0 "$IPU_CONTAINER_NAME" add_user.sh "$user" "$uid" "$(id -gn)" "$gid"; then
        ask rm --force "$IPU_CONTAINER_NAME" >/dev/null || true
        fail "no user like you could be made in $IPU_CONTAINER_NAME." "Try --with-root."
    fi
    echo "$IPU_CONTAINER_NAME is running; into_docker.sh into opens a shell in it."
}

into() {
    check_engine
    [ "$(state_of_container)" = running ] ||
        fail "$IPU_CONTAINER_NAME is not running." "into_docker.sh start starts it."
    local user terminal=()
    user=$(ask container inspect --format '{{index .Config.Labels "softipu.user"}}' "$IPU_CONTAINER_NAME")
    [ -n "$user" ] || fail "$IPU_CONTAINER_NAME was not started by this script." "IPU_CONTAINER_NAME names another."
    # The image sets both for its own user, and an engine leaves what is set.
    local home
    home=$(ask exec --user 0:0 "$IPU_CONTAINER_NAME" getent passwd "$user" | cut -d: -f6) || home=
    [ -n "$home" ] || fail "$IPU_CONTAINER_NAME has no user $user." "into_docker.sh stop, and start it again."
    [ ! -t 0 ] || terminal=(--tty)
    [ "$#" -gt 0 ] || set -- bash
    exec "$IPU_ENGINE" exec --interactive ${terminal[@]+"${terminal[@]}"} --user "$user" \
        --env "USER=$user" --env "HOME=$home" "$IPU_CONTAINER_NAME" "$@"
}

stop() {
    [ "$#" -eq 0 ] || wrong "stop takes no arguments."
    check_engine
    if [ -z "$(state_of_container)" ]; then
        echo "There is no $IPU_CONTAINER_NAME."
        return
    fi
    ask stop --time 5 "$IPU_CONTAINER_NAME" >/dev/null || true
    ask rm --force "$IPU_CONTAINER_NAME" >/dev/null || fail "$IPU_CONTAINER_NAME could not be removed."
    echo "$IPU_CONTAINER_NAME is stopped and removed."
}

[ "$#" -gt 0 ] || wrong "what shall be done?"
action=$1
shift
case $action in
-h | --help)
    usage
    exit 0
    ;;
start | into | stop)
    find_engine
    "$action" "$@"
    ;;
*) wrong "there is no '$action'." ;;
esac
