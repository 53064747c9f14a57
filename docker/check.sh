#!/usr/bin/env bash
# Builds the image from a fresh clone and uses it as a user who is not root: tools, health check and
# a short training. Needs podman, buildah, git and root; without a base image also debootstrap.
# Works where no container can be started: everything runs in a chroot.
#
#   BASE_IMAGE=NAME     a base image to pull, instead of one made by debootstrap
#   BASE_DIRECTORY=DIR  a system that debootstrap made before
#   EXTRAS=torch        build with fewer front ends
#   KEEP=1              keep the storage, and say where it is
set -euo pipefail

repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
image=softipu-check
for program in podman buildah git; do
    if ! command -v "$program" >/dev/null; then
        echo "check.sh: $program is needed, and it is not installed." >&2
        exit 1
    fi
done
if [ "$(id -u)" -ne 0 ]; then
    echo "check.sh: a chroot is for root only." >&2
    exit 1
fi

work=$(mktemp -d "${TMPDIR:-/tmp}/softipu-docker-check.XXXXXX")
storage=(--root "$work/storage" --runroot "$work/run" --storage-driver vfs)
clean_up() {
    if [ -n "${KEEP:-}" ]; then
        echo "Kept: $work (podman ${storage[*]} …)"
        return
    fi
    # What a killed run leaves mounted must go first, or its files would be deleted where they are.
    awk -v work="$work/" 'index($2, work) == 1 {print $2}' /proc/mounts | sort -r |
        while read -r place; do umount -l "$place"; done
    rm -rf "$work"
}
trap clean_up EXIT

say() { printf '== %s\n' "$*"; }

if [ -n "${BASE_IMAGE:-}" ]; then
    base=$BASE_IMAGE
else
    say "A base image, made by debootstrap"
    base=softipu-check-base
    system=${BASE_DIRECTORY:-$work/base}
    if [ ! -d "$system" ]; then
        debootstrap --variant=minbase bookworm "$system" >"$work/debootstrap.log" 2>&1 ||
            { tail -n 20 "$work/debootstrap.log" >&2; exit 1; }
    fi
    tar --create --directory "$system" --exclude './var/cache/apt/archives/*.deb' . |
        podman "${storage[@]}" import --quiet - "$base"
    rm -rf "$work/base"
fi

# The build has its own file system: pip's settings go in as a secret, and local folders that they
# name as volumes. An index in a folder `simple` usually has its files beside it.
settings=$work/pip.conf
volumes=()
echo '[global]' >"$settings"
python3 -m pip config list 2>/dev/null | sed -n "s/^[^.]*\.\([a-z-]*\)='\(.*\)'\$/\1 \2/p" |
    while read -r key value; do
        case $key in
        cert) cp "$value" "$work/certificates" && echo 'cert = /run/certificates' ;;
        index-url | extra-index-url | find-links | trusted-host | proxy) echo "$key = $value" ;;
        esac
    done | sort -u >>"$settings"
[ ! -e "$work/certificates" ] || volumes+=(--volume "$work/certificates:/run/certificates:ro")
while read -r place; do
    place=${place#file://}
    place=${place%/simple}
    [ ! -d "$place" ] || volumes+=(--volume "$place:$place:ro")
done < <(sed 's/^[^=]*= *//' "$settings" | tr ' ' '\n')

say "A fresh clone"
git clone --quiet "$repository" "$work/clone"

say "The image"
podman "${storage[@]}" build --isolation=chroot --format docker --layers=false --quiet \
    --secret "id=pip.conf,src=$settings" ${volumes[@]+"${volumes[@]}"} \
    --build-arg "BASE_IMAGE=$base" ${EXTRAS:+--build-arg "EXTRAS=$EXTRAS"} \
    --tag "$image" --file "$work/clone/docker/Dockerfile" "$work/clone"
podman "${storage[@]}" image inspect --format 'user {{.Config.User}}, {{.Size}} bytes' "$image"

say "As the image's own user"
container=$(buildah "${storage[@]}" from --pull-never "$image")
inside() {
    buildah "${storage[@]}" run --isolation=chroot \
        --volume "$work/clone/examples:/examples:ro" "$@"
}
user=$(inside "$container" -- id -u)
if [ "$user" -eq 0 ]; then
    echo "check.sh: the image runs as root." >&2
    exit 1
fi
inside "$container" -- gc-monitor
inside "$container" -- softipu doctor --no-zip
inside "$container" -- bash -c 'source /opt/poplar_sdk/enable && gc-info -d 0 --ipu-arch'
say "The health check"
mapfile -t health < <(podman "${storage[@]}" image inspect \
    --format '{{range .HealthCheck.Test}}{{println .}}{{end}}' "$image" | sed '/^$/d')
inside "$container" -- "${health[@]:1}" >/dev/null
say "A training"
inside "$container" -- python /examples/digits_training.py --epochs 2

say "The front ends"
extras=,${EXTRAS:-torch,tensorflow,paddle},
case $extras in *,torch,*) inside "$container" -- python -c 'import poptorch' ;; esac
case $extras in *,tensorflow,*) inside "$container" -- python -c 'from tensorflow.python import ipu' ;; esac
case $extras in *,paddle,*)
    inside "$container" -- python -c 'import paddle; paddle.static.IpuStrategy()'
    # Through the device plugin: no CUSTOM_DEVICE_ROOT, no compiler in the image.
    inside "$container" -- python -c '
import paddle
paddle.set_device("ipu")
total = (paddle.ones([2, 3]) @ paddle.ones([3, 4])).sum()
print("on", total.place, "the sum is", float(total))
assert "ipu" in paddle.device.get_all_custom_device_type() and float(total) == 24' ;;
esac

say "install_rdma.sh"
inside "$container" -- bash /usr/local/share/softipu/installers/install_rdma.sh
say "As a user that the image does not know"
# With a state directory of its own, as gc-docker and into_docker.sh pass one: the one in the home
# directory is the first user's by now.
inside --user 4321:4321 "$container" -- env SOFTIPU_HOME=/tmp/stranger gc-monitor --no-card-info
say "As a user that add_user.sh makes"
# The second has the number of the image's own user, as the first user of most machines does.
for names in "somebody 5432 people 6543" "me 1000 us 1000"; do
    read -r user uid group gid <<<"$names"
    inside --user 0:0 "$container" -- add_user.sh "$user" "$uid" "$group" "$gid"
    inside --user 0:0 "$container" -- add_user.sh "$user" "$uid" "$group" "$gid"
    # shellcheck disable=SC2016  # expanded inside
    told=$(inside --user "$user" "$container" -- bash -c \
        'SOFTIPU_HOME=/tmp/$(id -u) gc-monitor >/dev/null && echo "$(id -un) $(id -u) $(id -g)"')
    echo "$told"
    [ "$told" = "$user $uid $gid" ]
done
say "All well"
