# Claims on trainings; jobs/claims.py says how they are kept. Names that begin with `new_` are what is to be written.
# uses: jobs_folder
# needs: key width most number_held token_held new_number new_token new_lease new_owner new_state

umask 077
read -r up _ </proc/uptime || up=0
up=${up%%.*}
read -r here </proc/sys/kernel/random/boot_id || here=-
dir=$_base/.claims/$key

# Read the claim in $dir; its $number is 0 where there is none.
read_claim() {
  number=0
  for file in "$dir"/*; do
    file=${file##*/}
    case $file in *[!0-9]* | ??????????*) ;; *) [ "$file" -gt "$number" ] && number=$file ;; esac
  done
  state='' token='' lease='' beat='' boot='' words=''
  [ "$number" = 0 ] || read -r state token lease beat boot words 2>/dev/null <"$dir/$number"
}

is_mine() {
  [ "$token" = "$token_held" ] && [ "$state" = held ]
}

# The line of a claim, as long as every other one, so that a beat needs no more space than there is.
format_claim() { # STATE TOKEN LEASE WORDS
  printf "%-${width}s\n" "$1 $2 $3 $up $here $4"
}

# Print the claim in $dir with its age in seconds.
show() {
  read_claim
  [ "$number" = 0 ] && return
  case $lease/$beat in /* | */ | *[!0-9/]*) echo "claim=$number damaged"; return 0 ;; esac
  if [ "$boot" = "$here" ] && [ "$boot" != - ] && [ "$up" -ge "$beat" ]; then
    age=$((up - beat))
  else
    : >"$dir/look.$$"
    age=$(($(stat -c %Y "$dir/look.$$" || date +%s) - $(stat -c %Y "$dir/$number")))
    rm -f "$dir/look.$$"
  fi 2>/dev/null
  echo "claim=$number $state $token $lease $age $words"
}

# Those renewed last come first; what was let go is left out.
list() {
  ls -1t "$_base"/.claims/*/[0-9]* 2>/dev/null | {
    count=0
    while read -r file; do
      dir=${file%/*} found=$(show)
      case $found in *" held "*)
        count=$((count + 1))
        [ "$count" -gt "$most" ] && { echo cut=1; break; }
        echo "$found"
      esac
    done
  }
}

take() {
  mkdir -p "$dir" || { echo "error=cannot create $dir on the target (disk full, or no permission)"; return; }
  { format_claim held "$new_token" "$new_lease" "$(date +%s) $new_owner" >"$dir/new.$new_token"; } 2>/dev/null || {
    rm -f "$dir/new.$new_token"
    echo "error=cannot write to $dir on the target (disk full?)"
    return
  }
  ln "$dir/new.$new_token" "$dir/$new_number" 2>/dev/null || [ -e "$dir/$new_number" ] ||
    echo "error=the file system of $dir does not support hard links"
  rm -f "$dir/new.$new_token"
  read_claim
  if [ "$number" = "$new_number" ] && [ "$token" = "$new_token" ]; then
    for file in "$dir"/*; do
      file=${file##*/}
      case $file in *[!0-9]*) ;; *) [ "$file" -lt "$new_number" ] && rm -f "$dir/$file" ;; esac
    done
  else
    read -r _ token _ 2>/dev/null <"$dir/$new_number" && [ "$token" = "$new_token" ] && rm -f "$dir/$new_number"
  fi
  show
}

write() {
  read_claim
  is_mine && format_claim "$new_state" "$token" "$lease" "$words" 1<>"$dir/$number"
  show
}

# Fail, and show who holds it, where somebody else does. Where there is no claim at all, or an empty one, the target has
# lost it (a new container; its power), and nobody holds it. What was let go is not held again by an act that comes late.
guard() {
  read_claim
  [ "$number" = 0 ] && return
  [ "$number" = "$number_held" ] && [ -z "$token" ] && return
  is_mine || { show; return 1; }
  format_claim held "$token" "$lease" "$words" 1<>"$dir/$number"
  return 0
}
