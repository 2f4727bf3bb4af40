#!/bin/sh
# Installs vgpu-run, or takes it away again: sh install.sh --help
# Below is one compound command, which a shell reads to its end before it does any of it: a script cut short does nothing.
{
set -eu
umask 022

# What is installed unless the environment says otherwise. `cargo xtask dist` fills both in.
release_version=''
release_url=''

usage() {
    cat <<'END'
Installs vgpu-run, which gives a guest VM's Ollama the GPU of its host.

Usage: sh install.sh [--service]             install, or upgrade
       sh install.sh --uninstall [--service] remove what was installed

  --service    set Ollama's service up too, or undo that (as root)
  --uninstall  remove the files that the receipt of the installation lists; one that was changed since is left
  --help       print this

Environment:
  VGPU_RUN_BASE_URL     the folder that the release is in: https://..., file:///... for a guest without a network,
                        or http:// on this machine alone (127.0.0.1, localhost)
  VGPU_RUN_VERSION      the version
  VGPU_RUN_INSTALL_DIR  the folder to install to [default: /usr/local/bin as root, otherwise ~/.local/bin];
                        as root one that root alone can write to

Needs x86-64 Linux, tar and gzip, one of curl and GNU wget (not for file://), and one of sha256sum, shasum, openssl.
END
}

say() { printf '%s\n' "$*"; }

fail() { # sentence [hint]
    printf 'install.sh: %s\n' "$1" >&2
    [ "$#" -lt 2 ] || printf 'hint: %s\n' "$2" >&2
    exit 1
}

have() { command -v "$1" >/dev/null 2>&1; }

# --- what this machine is ---

check_machine() {
    for tool in cat chmod cp find grep gzip id mkdir mktemp mv rm rmdir tar uname; do
        have "$tool" || fail "this needs the command $tool, which is not here" "Install it with your package manager."
    done
    [ "$(uname -s)" = Linux ] || fail "vgpu-run runs in Linux guests, and this is $(uname -s)"
    case $(uname -m) in
    x86_64 | amd64) ;;
    *) fail "vgpu-run is there for x86_64, and this machine is $(uname -m)" ;;
    esac
    kernel=$(uname -r)
    kernel_major=${kernel%%.*}
    kernel_minor=${kernel#*.}
    kernel_minor=${kernel_minor%%[!0-9]*}
    case $kernel_major$kernel_minor in
    '' | *[!0-9]*) ;;
    *) [ "$((kernel_major * 1000 + kernel_minor))" -ge 3002 ] ||
        fail "vgpu-run needs Linux 3.2 or later, and this is $kernel" ;;
    esac
    if have sha256sum; then
        digester=sha256sum
    elif have shasum; then
        digester='shasum -a 256'
    elif have openssl; then
        digester='openssl dgst -sha256 -r'
    else
        fail "there is nothing here that checks a SHA-256, and nothing is installed unchecked" \
            "Install one of sha256sum (coreutils), shasum (perl), openssl."
    fi
}

# The program is static, but the libraries that it hands to Ollama are not, and neither is Ollama.
libc_remark() {
    libc=$(getconf GNU_LIBC_VERSION 2>/dev/null || :)
    case $libc in
    'glibc 2.'*)
        libc=${libc#glibc 2.}
        [ "${libc%%[!0-9]*}" -ge 17 ] ||
            say "This machine has glibc 2.$libc. vgpu-run works, but the programs that it gives the GPU need 2.17 or later."
        ;;
    'glibc '*) ;;
    *) say "This machine's C library is not glibc. vgpu-run works, but the programs that it gives the GPU need glibc 2.17 or later." ;;
    esac
}

digest() { # file
    # Two words are a program and its options.
    # shellcheck disable=SC2086
    sum=$($digester <"$1")
    printf '%s' "${sum%% *}"
}

# --- fetching ---

# Sets $transport: how $url is fetched. Nothing comes over a network in the clear.
check_url() {
    case $url in
    https://?*) transport=https ;;
    file:///*) transport='file' ;;
    http://*)
        host=${url#http://}
        host=${host%%/*}
        case $host in
        *@*) fail "$url is neither https:// nor file://" ;;
        esac
        case ${host%%:*} in
        127.0.0.1 | localhost) transport=loopback ;;
        *) fail "$url is neither https:// nor file://, nor on this machine" ;;
        esac
        ;;
    '') fail "nothing says where the release is" "VGPU_RUN_BASE_URL=https://... names the folder that it is in." ;;
    *) fail "$url is neither https:// nor file://" ;;
    esac
    [ "$transport" != file ] || return 0
    if have curl; then
        fetcher=curl
    elif have wget; then
        case $(wget --version 2>&1 || :) in
        *'GNU Wget'*) fetcher=wget ;;
        *)
            # BusyBox's checks no certificates.
            [ "$transport" = loopback ] ||
                fail "the wget of this machine does not check whom it talks to" "Install curl, or GNU wget."
            fetcher=wget
            ;;
        esac
    else
        fail "neither curl nor wget is here" \
            "Install one of them, or fetch the release elsewhere and set VGPU_RUN_BASE_URL=file:///FOLDER."
    fi
}

fetch() { # name, to the staging folder
    from=$url/$1
    to=$stage/$1
    case $transport-${fetcher:-none} in
    file-*) cp "${from#file://}" "$to" 2>"$stage/why" ;;
    https-curl) curl --proto '=https' --tlsv1.2 -fsSL --retry 3 -o "$to" "$from" 2>"$stage/why" ;;
    https-wget) fetch_by_wget "$from" ;;
    loopback-curl) curl --noproxy '*' --proto '=http' -fsS -o "$to" "$from" 2>"$stage/why" ;;
    loopback-wget) (unset http_proxy HTTP_PROXY all_proxy ALL_PROXY && wget -q -O "$to" "$from") 2>"$stage/why" ;;
    esac || {
        # What follows the first line is advice on the fetcher's own options.
        read -r why <"$stage/why" || :
        fail "failed to fetch $from: $why"
    }
}

# It would follow a redirection to plain http by itself. So it follows none, and this does, to https:// alone.
fetch_by_wget() { # address
    at=$1
    for _ in 1 2 3 4 5 6; do
        ! wget -nv --server-response --max-redirect=0 -O "$to" "$at" 2>"$stage/why" || return 0
        next=
        said=
        # A server's lines are indented, and wget's own are not, of which the last says why it ended.
        while IFS= read -r line; do
            case $line in
            '  '[Ll]ocation:\ *)
                next=${line#*: }
                next=${next%"$return"}
                ;;
            ' '* | '') ;;
            *) said=$line ;;
            esac
        done <"$stage/why"
        case $next in
        '')
            printf '%s\n' "$said" >"$stage/why"
            return 1
            ;;
        https://?*) at=$next ;;
        *)
            printf 'redirected to %s, which is not https://\n' "$next" >"$stage/why"
            return 1
            ;;
        esac
    done
    printf 'redirected more than five times\n' >"$stage/why"
    return 1
}

# Sets $version, $package and $expected from SHA256SUMS.
choose_release() {
    fetch SHA256SUMS
    version=${VGPU_RUN_VERSION:-$release_version}
    if [ -z "$version" ]; then
        while read -r _ name; do
            name=${name#\*}
            case $name in
            vgpu-run-*-x86_64-linux.tar.gz)
                [ -z "$version" ] || fail "$url has several versions" "VGPU_RUN_VERSION=... names one."
                version=${name#vgpu-run-}
                version=${version%-x86_64-linux.tar.gz}
                ;;
            esac
        done <"$stage/SHA256SUMS"
    fi
    case $version in
    '') fail "$url/SHA256SUMS names no release for x86_64" ;;
    *[!0-9A-Za-z.+-]*) fail "$version is no version" ;;
    esac
    package=vgpu-run-$version-x86_64-linux
    expected=
    while read -r sum name; do
        [ "${name#\*}" != "$package.tar.gz" ] || expected=$sum
    done <"$stage/SHA256SUMS"
    [ -n "$expected" ] || fail "$url/SHA256SUMS has no $package.tar.gz"
}

# --- where things go ---

# Sets $dir, and $share and $receipt that belong to it.
choose_place() {
    if [ -n "${VGPU_RUN_INSTALL_DIR:-}" ]; then
        dir=$VGPU_RUN_INSTALL_DIR
    elif [ -z "$sudo" ]; then
        dir=/usr/local/bin
    else
        [ -n "${HOME:-}" ] || fail "HOME is not set" "VGPU_RUN_INSTALL_DIR=... names a folder to install to."
        dir=$HOME/.local/bin
    fi
    case $dir in
    /*) ;;
    *) dir=$PWD/$dir ;;
    esac
    dir=${dir%/}
    case $dir in
    /?*/bin)
        share=${dir%/bin}/share
        receipt=$share/vgpu-run/receipt
        ;;
    *)
        share=
        receipt=$dir/.vgpu-run-receipt
        ;;
    esac
}

# A user who can write to a folder of root's, or replace one on the way to it, would have root run or remove what they like.
guard() { # folder, there or to be made
    [ -z "$sudo" ] || return 0
    near=$1
    while [ ! -d "$near/." ]; do near=${near%/*}; done
    # As it is named, and where links lead.
    for at in "$near" "$(cd -P "$near/" && pwd -P)"; do
        # In a folder of all users only what is there already is safe from them.
        sticky=
        [ "$near" = "$1" ] || sticky='! -perm -1000'
        while :; do
            owned "$at" "! -user 0 $unmapped" && fail "root does not install to $1: ${at:-/} belongs to another user" "$guard_hint"
            owned "$at" "-perm -002 $sticky" && fail "root does not install to $1: all users can write to ${at:-/}" "$guard_hint"
            owned "$at" "-perm -020 ! -group 0 $(staff "$at")" &&
                fail "root does not install to $1: a group can write to ${at:-/}" "$guard_hint"
            [ -n "$at" ] || break
            at=${at%/*}
            sticky='! -perm -1000'
        done
    done
}

guard_hint='Name a folder that root alone can write to: VGPU_RUN_INSTALL_DIR=... Or install as a user, without root.'

owned() { # folder, what find asks of it
    # Words of find's.
    # shellcheck disable=SC2086
    seen=$(find "$1/." -prune $2 -print 2>&1) || fail "failed to look at ${1:-/}: $seen"
    [ -n "$seen" ]
}

# Debian's group staff may write to /usr/local, and is as good as root there.
staff() { # folder
    case $1 in
    /usr/local | /usr/local/*) ! find / -prune -group staff >/dev/null 2>&1 || printf '! -group staff' ;;
    esac
}

# What was begun and not finished goes away however this ends.
# shellcheck disable=SC2329 # a trap calls it
clean_up() {
    code=$?
    trap - EXIT
    # A second signal must not end what cleans up after the first.
    trap '' HUP INT PIPE TERM
    [ -z "$stage" ] || rm -rf "$stage"
    [ -z "$probe" ] || rm -f "$probe"
    [ -n "$placed" ] || remove_dirs "$made_dirs"
    exit "$code"
}

# A signal may end mktemp when it has made a file and before it has said which. So it is asked for a name alone, and what is made
# under that name is known beforehand.
new_name() { # folder
    mktemp -u "$1/.vgpu-run.XXXXXX"
}

# What test -w says of root in a read-only file system depends on the shell.
writable() { # folder
    probe=$(new_name "$1") || return 1
    # With -C the file must be new; a link that somebody put there is not followed.
    made=yes
    (set -C && : >"$probe") 2>/dev/null || made=
    rm -f "$probe"
    probe=
    [ -n "$made" ]
}

make_dir() { # path; the folders made are in $made_dirs, a line each, the last one first
    [ ! -d "$1" ] || return 0
    parent=${1%/*}
    [ -z "$parent" ] || make_dir "$parent"
    # First, for the same reason as above.
    made_dirs=$1$newline$made_dirs
    why=$(mkdir "$1" 2>&1) || fail "failed to make the folder $1: ${why##*: }"
}

remove_dirs() { # lines; those that are not empty stay
    printf '%s' "$1" | while read -r path; do
        rmdir "$path" 2>/dev/null || :
    done
}

# --- the receipt: a remark, then `SHA-256  /path` for each file and `dir  /path` for each folder made ---

listed() { # path
    [ -f "$receipt" ] || return 1
    while read -r _ entry; do
        [ "$entry" != "$1" ] || return 0
    done <"$receipt"
    return 1
}

# --- installing ---

unpack() {
    fetch "$package.tar.gz"
    found=$(digest "$stage/$package.tar.gz")
    [ "$found" = "$expected" ] ||
        fail "$url/$package.tar.gz is not what SHA256SUMS says: its SHA-256 is $found, and should be $expected" \
            "Nothing was installed. Try again; if it stays, tell whoever keeps that folder."
    why=$(tar -xzof "$stage/$package.tar.gz" -C "$stage" 2>&1) || fail "failed to unpack $package.tar.gz: $why"
    top=$stage/$package
    [ -f "$top/bin/vgpu-run" ] || fail "there is no bin/vgpu-run in $package.tar.gz"
    chmod 755 "$top/bin/vgpu-run"
    says=$("$top/bin/vgpu-run" --version 2>&1 </dev/null) || fail "the new vgpu-run does not run in $dir: $says"
    case $says in
    "vgpu-run $version"*) ;;
    *) fail "the new vgpu-run says that it is: $says" ;;
    esac
}

# Sets $files: what goes where, a line each, the name in the release before the path.
choose_files() {
    files=
    if [ -n "$share" ] && [ -d "$top/share" ]; then
        files=$(cd "$top" && find share -type f | while read -r name; do printf '%s %s\n' "$name" "${share%share}$name"; done)
        files=$files$newline
    fi
    files=$files"bin/vgpu-run $dir/vgpu-run"
}

# Whatever can fail is done before anything is in its place.
prepare() {
    make_dir "${receipt%/*}"
    printf '# vgpu-run %s. install.sh --uninstall takes away what is listed here and was not changed.\n' "$version" \
        >"$stage/receipt"
    while read -r name path; do
        [ ! -d "$path" ] || fail "$path is a folder"
        [ ! -e "$path" ] || listed "$path" || fail "$path is there, and this script did not install it" \
            "Move it away, or name another folder: VGPU_RUN_INSTALL_DIR=..."
        guard "${path%/*}"
        make_dir "${path%/*}"
        writable "${path%/*}" || fail "${path%/*} cannot be written to"
        [ "$name" = bin/vgpu-run ] || chmod 644 "$top/$name"
        printf '%s  %s\n' "$(digest "$top/$name")" "$path" >>"$stage/receipt"
    done <<END
$files
END
    writable "${receipt%/*}" || fail "${receipt%/*} cannot be written to"
    printf '%s' "$made_dirs" | while read -r path; do
        printf 'dir  %s\n' "$path"
    done >>"$stage/receipt"
    [ ! -f "$receipt" ] || while read -r sum path; do
        [ "$sum" != dir ] || printf 'dir  %s\n' "$path"
    done <"$receipt" >>"$stage/receipt"
    before=
    [ ! -f "$dir/vgpu-run" ] || before=$("$dir/vgpu-run" --version 2>/dev/null </dev/null || echo broken)
    before=${before%%"$newline"*}
}

place() {
    placed=yes
    [ ! -f "$receipt" ] || cp "$receipt" "$stage/old-receipt"
    # First, so that whatever comes between is a matter of installing again.
    mv -f "$stage/receipt" "$receipt"
    while read -r name path; do
        mv -f "$top/$name" "$path"
    done <<END
$files
END
    # What the old version had and this one has not.
    [ ! -f "$stage/old-receipt" ] || while read -r sum path; do
        case $sum in '#' | dir) continue ;; esac
        listed "$path" || [ ! -f "$path" ] || [ "$(digest "$path")" != "$sum" ] || rm -f "$path"
    done <"$stage/old-receipt"
}

install() {
    url=${VGPU_RUN_BASE_URL:-$release_url}
    url=${url%/}
    check_url
    make_dir "$dir"
    writable "$dir" || fail "$dir cannot be written to" "VGPU_RUN_INSTALL_DIR=... names another folder."
    # Beside the target: a rename is atomic within a file system alone.
    stage=$(new_name "$dir") || fail "failed to find a name for a folder in $dir"
    mkdir -m 700 "$stage" 2>/dev/null || fail "failed to make a folder in $dir"
    choose_release
    unpack
    choose_files
    prepare
    place
    case $before in
    '') say "vgpu-run $version is installed: $dir/vgpu-run" ;;
    "vgpu-run $version"*) say "vgpu-run $version is installed anew: $dir/vgpu-run" ;;
    *) say "vgpu-run $version is installed in place of ${before#vgpu-run }: $dir/vgpu-run" ;;
    esac
    libc_remark
    look_for_device
    warn_of_driver
    if [ -n "$with_service" ]; then
        "$dir/vgpu-run" service install --yes </dev/null || fail "vgpu-run is installed, and Ollama's service is not set up"
    else
        what_next
    fi
}

# --- what comes next ---

# Sets $device and $driver of it. A real GPU with the same ids has far larger registers.
look_for_device() {
    device=
    driver=
    for function in "${VGPU_SYSFS:-/sys}"/bus/pci/devices/*; do
        [ -r "$function/vendor" ] && [ -r "$function/device" ] && [ -r "$function/resource" ] || continue
        read -r vendor <"$function/vendor" || :
        read -r id <"$function/device" || :
        [ "$vendor-$id" = 0x10de-0x2331 ] || continue
        read -r start end _ <"$function/resource" || :
        case $((end - start + 1)) in
        4096 | 8192) ;;
        *) continue ;;
        esac
        device=${function##*/}
        driver=$(readlink "$function/driver" 2>/dev/null || :)
        driver=${driver##*/}
        return 0
    done
}

# What else in this machine takes the device for a GPU of NVIDIA's.
warn_of_driver() {
    [ -n "$device" ] || return 0
    case $driver in
    '' | pci-stub | pcieport | vgpu-run) ;;
    *)
        say "The kernel driver $driver has taken the device $device. To free it, now and from the next start on:"
        say "  echo $device | ${sudo}tee /sys/bus/pci/devices/$device/driver/unbind"
        say "  ${sudo}vgpu-run service install      # its udev rule keeps drivers away"
        ;;
    esac
    # What Ollama's installer looks for, in its order: nvidia-smi, then lspci or lshw that know of a device of NVIDIA's.
    if ! have nvidia-smi && { have lspci || have lshw; }; then
        say "Before you install or upgrade Ollama with its own installer: it would take the device $device for a GPU without a"
        say "driver and install NVIDIA's, which is of no use here. It does not where it finds an nvidia-smi:"
        say "  ${sudo}ln -s /bin/true /usr/local/bin/nvidia-smi      # before"
        say "  ${sudo}rm /usr/local/bin/nvidia-smi                   # after"
    fi
}

what_next() {
    command=vgpu-run
    case :$PATH: in
    *:"$dir":*) ;;
    *)
        command=$dir/vgpu-run
        say "$dir is not on your PATH. For this shell: export PATH=\"$dir:\$PATH\""
        ;;
    esac
    [ -n "$device" ] || say "There is no VGPU-STUB device (10de:2331) in this machine: its host adds it."
    service=
    for folder in /etc/systemd/system /usr/local/lib/systemd/system /usr/lib/systemd/system /lib/systemd/system; do
        [ ! -f "$folder/ollama.service" ] || service=yes
    done
    by_hand="$command ollama serve"
    # Only root may open the device before the udev rule is there.
    [ -z "$device" ] || [ -w "${VGPU_SYSFS:-/sys}/bus/pci/devices/$device/resource0" ] ||
        by_hand="sudo $dir/vgpu-run --user $(id -un) ollama serve"
    if [ -z "$sudo" ]; then
        by_service="$command service install"
    else
        by_service="install vgpu-run as root: curl ... | sudo sh -s -- --service"
    fi
    say "Next:"
    if [ -n "$service" ]; then
        say "  for Ollama's service   $by_service"
    elif have ollama; then
        say "  by hand                $by_hand"
    else
        say "  install Ollama, then   $by_hand"
        say "  or for its service     $by_service"
    fi
    say "  if it does not work    $command check"
}

# --- removing ---

uninstall() {
    [ -f "$receipt" ] || fail "there is no receipt of an installation: $receipt" \
        "VGPU_RUN_INSTALL_DIR=... names the folder that it was installed to."
    if [ -n "$with_service" ]; then
        "$dir/vgpu-run" service remove --yes </dev/null || fail "Ollama's service still starts with vgpu-run; nothing was removed"
    fi
    for drop_in in /etc/systemd/system/*.service.d/zz-vgpu-run.conf; do
        if [ -f "$drop_in" ] && grep -qF "=$dir/vgpu-run " "$drop_in"; then
            fail "a service starts with $dir/vgpu-run: $drop_in" "As root: vgpu-run service remove, or --uninstall --service."
        fi
    done
    while read -r sum path; do
        case $sum in '#' | dir) continue ;; esac
        [ ! -e "$path" ] || writable "${path%/*}" || fail "${path%/*} cannot be written to; nothing was removed"
    done <"$receipt"
    writable "${receipt%/*}" || fail "${receipt%/*} cannot be written to; nothing was removed"
    left=
    while read -r sum path; do
        case $sum in '#' | dir) continue ;; esac
        if [ ! -f "$path" ]; then
            say "$path was gone already"
        elif [ "$(digest "$path")" = "$sum" ]; then
            rm -f "$path"
            say "removed $path"
        else
            say "$path was changed since it was installed, and is left"
            left=$left$path$newline
        fi
    done <"$receipt"
    dirs=$(while read -r sum path; do [ "$sum" != dir ] || printf '%s\n' "$path"; done <"$receipt")
    rm -f "$receipt"
    placed=yes
    remove_dirs "$dirs$newline"
    [ -z "$left" ] || exit 1
}

main() {
    newline='
'
    return=$(printf '\r')
    stage=
    probe=
    placed=
    made_dirs=
    sudo=
    [ "$(id -u)" -eq 0 ] || sudo='sudo '
    uninstall=
    with_service=
    for argument; do
        case $argument in
        --help | -h)
            usage
            return 0
            ;;
        --uninstall) uninstall=yes ;;
        --service) with_service=yes ;;
        *) fail "there is no option $argument" "--help lists them." ;;
        esac
    done
    check_machine
    [ -z "$with_service" ] || [ -z "$sudo" ] || fail "only root can set a service up" "Start this script as root: curl ... | sudo sh -s -- --service"
    choose_place
    # In a user namespace that has no other users, the system's root shows as nobody.
    unmapped=
    [ -n "$(find / -prune -user 0)" ] || unmapped='! -user 65534'
    guard "$dir"
    guard "${receipt%/*}"
    trap clean_up EXIT
    trap 'exit 129' HUP
    trap 'exit 130' INT
    trap 'exit 141' PIPE
    trap 'exit 143' TERM
    if [ -n "$uninstall" ]; then uninstall; else install; fi
}

main "$@"
exit
}
