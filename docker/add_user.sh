#!/usr/bin/env bash
# In a container, as root: makes a user with the names and numbers of a user of the host, so that
# files in mounted folders belong to the same person on both sides. Twice is as good as once.
set -euo pipefail

usage() {
    echo "usage: add_user.sh USER UID GROUP GID"
}

fail() {
    echo "add_user.sh: $1" >&2
    exit 1
}

case ${1:-} in
-h | --help)
    usage
    exit 0
    ;;
esac
if [ "$#" -ne 4 ]; then
    usage >&2
    exit 2
fi
user=$1 uid=$2 group=$3 gid=$4
for name in "$user" "$group"; do
    [[ $name =~ ^[A-Za-z_][A-Za-z0-9_.@-]*$ ]] || fail "'$name' cannot be the name of a user or group."
done
for number in "$uid" "$gid"; do
    [[ $number =~ ^[0-9]{1,9}$ ]] || fail "'$number' is not the number of a user or group."
done
[ "$(id -u)" -eq 0 ] || fail "only root can make users."
if [ "$uid" -eq 0 ]; then
    echo "add_user.sh: $user is root here too; nothing to do."
    exit 0
fi

# Another entry may have the number or the name: what decides about files is the number.
if ! getent group "$gid" >/dev/null; then
    if getent group "$group" >/dev/null; then
        group=${group}_$gid
    fi
    groupadd --gid "$gid" "$group"
fi
holder=$(getent passwd "$uid" | cut -d: -f1 || true)
if [ "$holder" != "$user" ]; then
    ! getent passwd "$user" >/dev/null || fail "'$user' exists here with another number."
fi
if [ -z "$holder" ]; then
    useradd --uid "$uid" --gid "$gid" --no-create-home --home-dir "/home/$user" --shell /bin/bash "$user"
else
    # The image's own user, most likely: it gets the host's names. usermod would refuse that while
    # the user has a process, and the container's first one is his.
    sed -i "s/^$holder:\([^:]*\):$uid:[0-9]*:/$user:\1:$uid:$gid:/" /etc/passwd
    [ ! -w /etc/shadow ] || sed -i "s/^$holder:/$user:/" /etc/shadow
fi
home=$(getent passwd "$uid" | cut -d: -f6)
mkdir -p "$home"
chown "$uid:$gid" "$home"
