# Plays systemd-run --pipe: a command with the user, the variables, the limits and as much of a sandbox as the faults take.
# $STANDIN: the program that makes system calls fail. $PROGRAMS: its folder.
variables=(PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin)
user= ; group= ; groups= ; limits=() ; mounts= ; sandbox=()

refuse() { echo "systemd-run: $1" >&2; exit 1; }

noexec() {
  local path
  for path in $1; do mounts+="mount --bind $path $path && mount -o remount,bind,noexec $path && "; done
  mounts+="mount --bind $PROGRAMS $PROGRAMS && mount -o remount,bind,exec $PROGRAMS && "
}

# The parts of a limit as they are or as high as this process may set them: systemd itself may raise any.
allowed() {
  local hard part parts=()
  hard=$(prlimit --pid $$ "--$1" --output HARD --noheadings | tr -d ' ')
  for part in ${2//:/ }; do
    part=${part//infinity/unlimited}
    if [ "$hard" != unlimited ] && { [ "$part" = unlimited ] || [ "$part" -gt "$hard" ]; }; then part=$hard; fi
    parts+=("$part")
  done
  (IFS=:; echo "${parts[*]}")
}

property() {
  local name=${1%%=*} value=${1#*=} list
  case "$name" in
    User) user=$value ;;
    Group) group=$value ;;
    SupplementaryGroups) groups=${value// /,} ;;
    Environment) eval "list=($value)"; variables+=("${list[@]}") ;;
    Limit*) name=${name#Limit}; limits+=("--${name,,}=$(allowed "${name,,}" "$value")") ;;
    ProtectKernelTunables) mounts+="mount --bind /sys /sys && mount -o remount,bind,ro /sys && " ;;
    NoExecPaths) noexec "$value" ;;
    ProcSubset) [ "$value" = all ] || refuse "not played: $1" ;;
    SystemCallFilter) [ "$value" = "~memfd_create" ] || refuse "not played: $1"; sandbox=("$STANDIN" sandbox --memfd --) ;;
    *) refuse "not played: $1" ;;
  esac
}

while [ $# -gt 0 ]; do
  case "$1" in
    -p) property "$2"; shift ;;
    --setenv=*) variables+=("${1#--setenv=}") ;;
    --pipe|--wait|--collect|--quiet) ;;
    --) shift; break ;;
    *) refuse "not played: $1" ;;
  esac
  shift
done

identity=()
if [ -n "$user" ] && [ "$user" != root ]; then
  IFS=: read -r name _ uid gid _ home shell < <(getent passwd "$user") || refuse "no user $user"
  [ -z "$group" ] || gid=$(getent group "$group" | cut -d: -f3)
  identity=(setpriv "--reuid=$uid" "--regid=$gid")
  if [ -n "$groups" ]; then identity+=("--groups=$gid,$groups"); else identity+=("--groups=$gid"); fi
  # What the unit sets counts for more.
  variables=("HOME=$home" "USER=$name" "LOGNAME=$name" "SHELL=$shell" "${variables[@]}")
fi
command=(env -i "${variables[@]}" "$@")
command=("${identity[@]}" "${sandbox[@]}" "${command[@]}")
[ ${#limits[@]} -eq 0 ] || command=(prlimit "${limits[@]}" -- "${command[@]}")
[ -z "$mounts" ] || command=(unshare --mount -- sh -c "$mounts exec \"\$@\"" sh "${command[@]}")
exec "${command[@]}"
