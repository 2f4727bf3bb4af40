# Plays systemctl, for one unit. $P: the file of its properties, $L: whether there is such a unit, $F: the unit's file.
verb= ; unit= ; wanted= ; value=
while [ $# -gt 0 ]; do
  case "$1" in
    -p) wanted="$wanted,$2"; shift ;;
    -p*) wanted="$wanted,${1#-p}" ;;
    --property=*) wanted="$wanted,${1#--property=}" ;;
    --property) wanted="$wanted,$2"; shift ;;
    -P) wanted="$wanted,$2"; value=yes; shift ;;
    --value) value=yes ;;
    -*) ;;
    *) if [ -z "$verb" ]; then verb=$1; else unit=$1; fi ;;
  esac
  shift
done
case "$verb" in
  show)
    if [ "$L" != true ] || { [ "${unit%.service}" != ollama ]; }; then
      printf 'Id=%s\nLoadState=not-found\nActiveState=inactive\nSubState=dead\nMainPID=0\n' "$unit"; exit 0
    fi
    while IFS= read -r line; do
      name=${line%%=*}
      case ",$wanted," in
        ,,|*",$name,"*) if [ -n "$value" ]; then printf '%s\n' "${line#*=}"; else printf '%s\n' "$line"; fi ;;
      esac
    done < "$P" ;;
  cat) [ "$L" = true ] && { echo "# $F"; cat "$F"; } || { echo "No files found for $unit." >&2; exit 1; } ;;
  is-active) grep -q '^ActiveState=active' "$P" && echo active || { echo inactive; exit 3; } ;;
  list-units|list-unit-files) [ "$L" = true ] && echo "ollama.service enabled" ;;
  *) exit 1 ;;
esac
exit 0
