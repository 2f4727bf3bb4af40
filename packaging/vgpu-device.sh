# What a package manager runs around the files of vgpu-device. Nothing here stops a device or a VM: a running device goes on
# with the program that it was started from, also when that file is replaced or removed.

say() { printf 'vgpu-device: %s\n' "$*"; }

# Whether systemd runs this system, and not a container or a root that is being made.
managed() { [ -d /run/systemd/system ] && command -v systemctl >/dev/null 2>&1; }

# Names of the devices that run, a line each.
running() {
    systemctl list-units --type=service --state=active,reloading --plain --no-legend --full --no-pager 'vgpu-device@*' 2>/dev/null |
        while read -r unit _; do printf '%s\n' "$unit"; done
}

can_reload() { # unit
    [ "$(systemctl show --property=CanReload --value "$1" 2>/dev/null)" = yes ]
}

# Says, before anything is replaced, which devices cannot take the new program over.
before_upgrade() {
    managed || return 0
    for unit in $(running); do
        can_reload "$unit" || say "$unit cannot be reloaded: it goes on with the old program, and its VM keeps its GPU, until it is restarted" \
            "(systemctl restart $unit, and vgpu-device replug)."
    done
}

after_install() { # whether it is an upgrade: yes or no
    if command -v systemd-sysusers >/dev/null 2>&1; then
        systemd-sysusers vgpu-device.conf
    fi
    if command -v systemd-tmpfiles >/dev/null 2>&1; then
        systemd-tmpfiles --create vgpu-device.conf || say "systemd-tmpfiles failed; each start of a device tries again."
    fi
    managed || return 0
    # By the unit as each device was started: a new one may promise what the old program does not know.
    able=
    if [ "$1" = yes ]; then
        for unit in $(running); do
            ! can_reload "$unit" || able="$able $unit"
        done
    fi
    systemctl daemon-reload
    for unit in $able; do
        systemctl reload "$unit" || say "$unit was not reloaded and goes on with the old program: journalctl -u $unit"
    done
    if [ "$1" = yes ]; then
        # Devices go on without it, and follow it when it is back.
        systemctl try-restart vgpu-device-node.service || say "vgpu-device-node did not restart: journalctl -u vgpu-device-node"
    fi
}

# Says what a removal leaves running.
before_remove() {
    managed || return 0
    for unit in $(running); do
        say "$unit goes on, and its VM keeps its GPU, until it is stopped (systemctl stop $unit). It does not start again without this package."
    done
    ! systemctl --quiet is-active vgpu-device-node.service ||
        say "vgpu-device-node.service goes on until it is stopped (systemctl stop vgpu-device-node)."
}

after_remove() {
    ! managed || systemctl daemon-reload
    say "/etc/vgpu-device and the user vgpu-worker are left."
}

# Removes what devices wrote, but no configuration of the operator's.
after_purge() {
    for link in /etc/systemd/system/*.wants/vgpu-device@*.service /etc/systemd/system/*.wants/vgpu-device-node.service; do
        [ ! -L "$link" ] || rm -f "$link"
    done
    if ! managed || [ -z "$(running)" ]; then
        rm -rf /var/cache/vgpu-device
        rm -rf /run/vgpu-device
    fi
    # systemd has forgotten that the directory is the unit's.
    ! managed || systemctl --quiet is-active vgpu-device-node.service || rm -rf /run/vgpu-device-node
    # Not if it has files.
    rmdir /etc/vgpu-device 2>/dev/null || :
}
