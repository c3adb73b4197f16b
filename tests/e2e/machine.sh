#!/bin/bash
# Boots systemd as the first process of a machine of its own: namespaces over this system's files, whose changes are gone
# with it. machine.mjs calls it, as root, on a terminal: systemd's log goes there.
#
#   machine.sh PREFIX CGROUP
#
# PREFIX  is seen as /usr/local. PREFIX/etc is laid over /etc; PREFIX/units has all units but those in PREFIX/lib.
# CGROUP  an empty group of cgroup v2 that may be used up.
set -euo pipefail

if (($$ != 1)); then
    echo $$ >"$2/cgroup.procs"
    echo $$ >"$1/pid"
    exec unshare --cgroup --pid --mount --uts --ipc --net --fork --kill-child=SIGKILL -- "$0" "$@"
fi

prefix=$1 ram=$1/ram
mount --make-rprivate /

# What is written goes to memory.
mkdir "$ram"
mount -t tmpfs ram "$ram"
for dir in etc var; do
    mkdir "$ram/$dir" "$ram/work-$dir"
    mount -t overlay "$dir" -o "lowerdir=/$dir,upperdir=$ram/$dir,workdir=$ram/work-$dir" "/$dir"
done
mount --bind "$prefix" /usr/local
mount -t tmpfs -o mode=755 run /run

# Devices of its own, so that systemd sets up none of this system's.
mkdir "$ram/dev"
mount -t tmpfs -o mode=755 dev "$ram/dev"
mkdir "$ram"/dev/{pts,shm,net}
for device in null zero full random urandom tty net/tun; do
    [[ -e /dev/$device ]] || continue
    : >"$ram/dev/$device"
    mount --bind "/dev/$device" "$ram/dev/$device"
done
mount -t devpts -o newinstance,ptmxmode=0666 devpts "$ram/dev/pts"
ln -s pts/ptmx "$ram/dev/ptmx"
ln -s /proc/self/fd "$ram/dev/fd"
: >"$ram/dev/console"
mount --bind "$(readlink /proc/self/fd/2)" "$ram/dev/console"
mount --move "$ram/dev" /dev

# The only hierarchy of control groups is the one that we were given.
umount -R /sys/fs/cgroup
mount -t cgroup2 cgroup2 /sys/fs/cgroup
umount -l /proc
mount -t proc proc /proc

# Credentials come into a service's namespace as mounts.
mount --make-rshared /

cp -r "$prefix/etc/." /etc/
systemd-sysusers /usr/local/lib/sysusers.d/sandgate.conf
systemd-tmpfiles --create /usr/local/lib/tmpfiles.d/sandgate.conf

exec env -i container=sandgate PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    SYSTEMD_UNIT_PATH=/usr/local/units:/usr/local/lib/systemd/system \
    /lib/systemd/systemd --system --unit=machine.target --log-target=console --show-status=0
