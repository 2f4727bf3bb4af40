# What a package manager runs around the files of vgpu-run. Nothing here stops a program or changes a service: a running
# program has the libraries in its memory, and goes on.

say() { printf 'vgpu-run: %s\n' "$*"; }

after_install() {
    [ ! -e /usr/local/bin/vgpu-run ] ||
        say "/usr/local/bin/vgpu-run, of install.sh, comes before /usr/bin/vgpu-run on PATH; its installer removes it: install.sh --uninstall"
}

# Says which services start with the program.
before_remove() {
    for drop_in in /etc/systemd/system/*.service.d/zz-vgpu-run.conf; do
        if [ -f "$drop_in" ] && grep -qF '=/usr/bin/vgpu-run ' "$drop_in"; then
            unit=${drop_in%.d/zz-vgpu-run.conf}
            say "${unit##*/} goes on, but does not start again while $drop_in names /usr/bin/vgpu-run: remove that file," \
                "or install this package again and run vgpu-run service remove."
        fi
    done
}
