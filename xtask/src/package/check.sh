# Installs, updates, removes and purges packages in a throwaway copy of this machine's root.
# sh check.sh PLACE OLDER NEWER: where to work, and the folders of the packages of two versions. In a mount namespace.
place=$1 older=$2 newer=$3

fail() { echo "FAILED: $*" >&2; exit 1; }
say() { echo "-- $*"; }

mkdir -p "$place/mnt"
mount -t tmpfs none "$place/mnt"
cd "$place/mnt"
mkdir upper work root
if ! mount -t overlay overlay -o lowerdir=/,upperdir=upper,workdir=work root; then
    echo "this machine makes no overlay of its root" >&2
    exit 77
fi
root=$PWD/root
mount -t proc proc root/proc
mount --bind /dev root/dev
mount -t tmpfs none root/run
mount -t tmpfs none root/tmp
mkdir root/tmp/older root/tmp/newer
mount --bind "$older" root/tmp/older
mount --bind "$newer" root/tmp/newer
export DEBIAN_FRONTEND=noninteractive LC_ALL=C
unset SLURM_CONF MUSTER_HOME

# Runs a command in the copy.
inside() { chroot "$root" "$@"; }
is_there() { [ -e "$root$1" ] || [ -L "$root$1" ] || fail "$1 is not there"; }
is_gone() { [ ! -e "$root$1" ] && [ ! -L "$root$1" ] || fail "$1 is still there"; }
says() {
    wanted=$1
    shift
    said=$(inside "$@" 2>&1) || fail "$*: $said"
    case $said in *"$wanted"*) ;; *) fail "$* says '$said', not '$wanted'" ;; esac
}
packages="muster-common muster-client muster-slurmctld muster-slurmdbd muster-slurmrestd muster-slurmd muster-sackd"
# The site's own configuration, which no package touches.
configure() {
    mkdir -p "$root/etc/slurm"
    echo "# the site's" >"$root/etc/slurm/slurm.conf"
}
configuration_is_kept() {
    [ "$(cat "$root/etc/slurm/slurm.conf")" = "# the site's" ] || fail "slurm.conf was changed"
}
works() {
    says "slurm " sinfo --version
    says "slurm " srun --version
    says "slurm " slurmctld -V
    says "slurm " slurmd -V
    says "slurm " slurmdbd -V
    says "slurm " slurmrestd -V
    says "slurm " sackd -V
    says "NodeName=" slurmd -C
    says "muster " muster version
    says "" muster config check /usr/share/doc/muster-common/examples/slurm.conf
    for user in slurm muster-agent; do inside id "$user" >/dev/null || fail "there is no account $user"; done
    for page in man1/muster.1 man1/sbatch.1 man8/slurmctld.8 man8/slurmd.8 man8/slurmdbd.8 man8/slurmrestd.8 man8/sackd.8; do
        is_there "/usr/share/man/$page.gz"
    done
    for name in muster sbatch slurmd; do is_there /usr/share/bash-completion/completions/$name; done
    for unit in slurmctld.service slurmdbd.service slurmrestd.service slurmrestd.socket slurmd.service sackd.service; do
        is_there /usr/lib/systemd/system/$unit
        if [ -x "$root/usr/bin/systemd-analyze" ]; then
            said=$(inside systemd-analyze verify "/usr/lib/systemd/system/$unit" 2>&1 | grep "${unit%.*}" || true)
            [ -z "$said" ] || fail "$said"
        fi
    done
}

# What the packages conflict with, where this machine has it.
say "what was here of Slurm, Grid Engine or Muster goes"
inside dpkg --force-depends --purge $(inside dpkg-query -W -f '${Package}\n' | grep -E '^(slurm|gridengine|muster-)' || true) >/dev/null 2>&1 || true
for user in slurm muster-agent; do inside userdel "$user" 2>/dev/null || true; done
rm -rf "$root/etc/slurm"

say "deb: $(for file in "$newer"/*.deb; do dpkg-deb -f "$file" Package Version Installed-Size | tr '\n' ' '; done)"
dpkg-deb -f "$newer"/muster-common_*.deb Depends | grep -q 'libc6 (>= ' || fail "no requirement of libc6"
for file in "$newer"/*.deb; do
    dpkg-deb -c "$file" | awk '$2 != "root/root" { print; bad = 1 } END { exit bad }' || fail "files that are not root's"
    ! dpkg-deb -c "$file" | grep -q 'etc/slurm/.' || fail "a package has a configuration"
done
configure
say "another maker's commands of the same names are in the way"
mkdir -p "$root/tmp/other/DEBIAN" "$root/tmp/other/usr/bin"
printf 'Package: gridengine-client\nVersion: 8.1.9\nArchitecture: all\nMaintainer: nobody\nDescription: qsub\n' >"$root/tmp/other/DEBIAN/control"
echo >"$root/tmp/other/usr/bin/qsub"
inside dpkg-deb --root-owner-group --build /tmp/other /tmp/other.deb >/dev/null
inside dpkg -i /tmp/other.deb >/dev/null
if said=$(inside sh -c 'dpkg -i /tmp/older/muster-common_*.deb /tmp/older/muster-client_*.deb' 2>&1); then
    fail "muster-client was installed beside gridengine-client"
fi
case $said in *"conflicts with gridengine-client"*) ;; *) fail "the conflict is not named: $said" ;; esac
inside dpkg --purge muster-common gridengine-client >/dev/null
for user in slurm muster-agent; do inside userdel "$user" 2>/dev/null || true; done
say "install"
inside sh -c 'dpkg -i /tmp/older/*.deb' >/dev/null
works
echo "# changed here" >>"$root/etc/logrotate.d/slurmd"
say "update"
inside sh -c 'dpkg -i /tmp/newer/*.deb' >/dev/null
works
for package in $packages; do
    case $(inside dpkg-query -W -f '${Version}' "$package") in 0.0.1-*) fail "$package was not updated" ;; esac
done
grep -q "changed here" "$root/etc/logrotate.d/slurmd" || fail "a changed file in /etc was lost"
configuration_is_kept
say "remove"
inside dpkg --remove $packages >/dev/null
for file in /usr/bin/muster /usr/bin/sinfo /usr/sbin/slurmd /usr/lib/systemd/system/slurmd.service; do is_gone $file; done
is_there /etc/logrotate.d/slurmd
configuration_is_kept
say "install again, with an account that the site made, purge"
inside userdel slurm
inside useradd --system --uid 5000 slurm
inside sh -c 'dpkg -i /tmp/newer/*.deb' >/dev/null
works
mkdir -p "$root/var/spool/slurmctld"
echo job >"$root/var/spool/slurmctld/journal"
echo line >"$root/var/log/slurm/slurmd.log"
[ "$(inside id -u slurm)" = 5000 ] || fail "the number of slurm was changed"
inside dpkg --purge $packages >/dev/null
is_gone /etc/logrotate.d/slurmd
is_gone /var/log/slurm/slurmd.log
is_there /var/spool/slurmctld/journal
configuration_is_kept

say "rpm: $(rpm -qp --qf '%{NAME}-%{VERSION} ' "$newer"/*.rpm)"
rpm -qpR "$newer"/muster-common-*.rpm | grep -q 'libc.so.6(GLIBC_' || fail "no requirement of the C library"
rpm -qpR "$newer"/muster-client-*.rpm | grep -q '^muster-common = ' || fail "no requirement of muster-common"
# Without what makes accounts elsewhere.
rm -f "$root/usr/bin/systemd-sysusers" "$root/bin/systemd-sysusers"
for user in slurm muster-agent; do inside userdel "$user" 2>/dev/null || true; done
# This machine's packages are unknown to RPM here, so what is required is not looked for.
rpm="rpm --dbpath /var/lib/rpm-of-check"
inside $rpm --initdb
say "install, update, remove"
inside sh -c "$rpm -U --nodeps /tmp/older/*.rpm"
works
[ "$(inside id -u slurm):$(inside id -g slurm)" = 64030:64030 ] || fail "slurm has another number"
echo "# changed here" >>"$root/etc/logrotate.d/slurmd"
inside sh -c "$rpm -U --nodeps /tmp/newer/*.rpm"
works
grep -q "changed here" "$root/etc/logrotate.d/slurmd" || fail "a changed file in /etc was lost"
inside $rpm -V --nodeps $packages | grep -v ' c /etc/logrotate.d/slurmd' && fail "files differ from what was installed"
inside $rpm -e --nodeps $packages 2>/dev/null
for file in /usr/bin/muster /usr/bin/sinfo /usr/sbin/slurmd /usr/lib/systemd/system/slurmd.service; do is_gone $file; done
is_there /var/spool/slurmctld/journal
configuration_is_kept

say "archive"
inside sh -c 'tar -xzf /tmp/newer/*.tar.gz --strip-components=1 --no-same-owner --no-overwrite-dir -C /'
works
configuration_is_kept
echo "The packages can be installed, updated, removed and purged."
