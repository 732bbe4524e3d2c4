# The checkpoints of a folder, the newest first, and what their files show. Of a folder of at most $_most_files files all
# are printed; of a larger one `cut`, and the files of as many of the newest checkpoints as fit, whole or not at all.
# checkpoints/listing.py says what a line means.
# needs: _folder _up_to _enough _most_files _most_bytes _most_weights _most_unnumbered
# needs: _ranking _endings _partial _looked_into _trackers _tracker_names
# paths: _folder

_newline='
'
export _newline
_blanks=$IFS

# Run a program with these lines as its last arguments.
_on_each() { # LINES PROGRAM...
  _given=$1; shift
  case $_given in
  '') ;;
  *"$_newline"*) _say "$_given" | tr '\n' '\0' | xargs -0 -r "$@" ;;
  *) "$@" "$_given" ;;
  esac
}
_has() { case $_newline$2 in *"$_newline$1"*) ;; *) return 1 ;; esac; } # BEGIN-OF-A-LINE LINES
_say() { printf '%s\n' "$@"; }
_bad() { printf 'bad %s %s\n' "$1" "$_file"; }
_whole() { case $(tail -c 99 "$_file" | tr -d ' \n\r') in *\}) ;; *) _bad "truncated:_no_closing_brace" ;; esac; }
# 8 bytes of header length (little endian), a JSON header, and data up to the largest end in data_offsets: 8 + length +
# end must be the file's size. kohya (ss_steps) and ai-toolkit (training_info) put the step in the header.
_safetensors() {
  # shellcheck disable=SC2046
  set -- "$1" $(od -An -v -tu1 -N 9 "$1")
  [ $# -gt 8 ] || { _bad "shorter_than_its_header"; return; }
  [ "$6$7$8$9" = 0000 ] && [ "$5" -lt 8 ] || { _bad "no_safetensors_header"; return; }
  _n=$(($2 + ($3 << 8) + ($4 << 16) + ($5 << 24))); _end=0; _saved=
  [ $_n -ge 2 ] && [ $_n -lt 100000001 ] && [ $((8 + _n)) -le $_size ] ||
    { _bad "header_of_${_n}_bytes_in_a_file_of_$_size"; return; }
  [ "${10}" = 123 ] || { _bad "no_safetensors_header"; return; }
  for _said in $(head -c $((8 + _n)) "$1" | tr -d ' \n\t\000' |
    grep -ao '"data_offsets":\[[0-9]*,[0-9]*\]\|"ss_steps":"[0-9]*"\|"training_info":"{[^}]*}'); do
    case $_said in
    '"data'*) _said=${_said##*,}; _said=${_said%]}; [ "$_said" -le $_end ] || _end=$_said ;;
    *) _saved=$_saved$_said$_newline ;;
    esac
  done
  [ ! "$_saved" ] || printf 'step %s\t%s\n' "$1" "$(_say "$_saved" |
    sed -n 's/^.*step[s\\]*":"*\([0-9]\{1,12\}\).*/\1/p' | sort -n | head -n 1)"
  _want=$((8 + _n + _end))
  [ $_want -le $_size ] || { _bad "truncated:_${_size}_of_${_want}_bytes"; return; }
  [ $_want -eq $_size ] || _bad "$((_size - _want))_bytes_too_long"
}

# zip archives whose end record comes last, or pickles of protocol 2 to 5 (128 N; 40 is an old text pickle); also gzip
# (31 139) and HDF5 (137 72) are written under these names, and anything at all under .bin and others.
_torch() {
  # shellcheck disable=SC2046
  set -- "$1" $(od -An -v -tu1 -N 2 "$1")
  case "$2 $3" in
  '80 75')
    tail -c 65557 "$1" | grep -q "$(printf 'PK\005\006')" || _bad "truncated:_no_zip_end_record" ;;
  '137 72')
    case $(od -An -tu1 -j 8 -N 1 "$1") in *[23]) _at=28 ;; *1) _at=44 ;; *) _at=40 ;; esac # the end of the file
    _end=$(od -An -tu8 -j $_at -N 8 "$1" | tr -d ' ')
    [ "${_end:-0}" -le "$_size" ] 2>/dev/null || _bad "truncated:_${_size}_of_${_end}_bytes" ;;
  '128 '[2-5]) # before zip archives, torch wrote data behind its pickles
    case $1\ $(od -An -tu1 -N 24 "$1" | tr -s '\n ' ' ') in *.bin\ * | *' 108 252 156 70 249 '*) ;;
    *) [ "$(tail -c 1 "$1" | tr -d "\000")" = . ] || _bad "truncated:_no_end_of_the_pickle" ;;
    esac ;;
  '31 139' | '40 '*) ;;
  '0 0') _bad "only_zeros_at_its_start" ;;
  *) case $1 in *.bin | *.tar | *.pkl | *.msgpack | *.pd*) ;; *) _bad "neither_a_zip_archive_nor_a_pickle" ;; esac ;;
  esac
}

_index() {
  grep -o '"[^"]*\.\(safetensors\|bin\)"' "$_file" | sort -u | tr -d '"' |
  while IFS= read -r _line; do printf 'shard %s\t%s\n' "$_file" "$_line"; done
  printf 'total %s\t%s\n' "$_file" "$(tr -d ' \n' <"$_file" | grep -o '"total_size":[0-9]*' | head -n 1 | tr -dc 0-9)"
}

# The files of all ranks that torch's .metadata lists and that are not there.
_metadata() {
  grep -ao '__[0-9]\{1,6\}_[0-9]\{1,6\}[.]distcp' "$_file" | sort -u | while IFS= read -r _line; do
    [ -e "${_file%/*}/$_line" ] || printf 'shard %s\t%s\n' "$_file" "$_line"
  done
}

_tracker() {
  _line=$(head -c 1000 "$_file" | head -n 1)
  [ ${#_line} -ge 999 ] || printf 'tracker %s\t%s\n' "$_file" "$_line"
}

_train_state() {
  printf 'step %s\t%s\n' "$_file" \
    "$(head -c 4096 "$_file" | tr -d ' \n' | grep -o '"current_step":[0-9]*' | tr -dc 0-9)"
}

# Whether something is a line of a list.
_is_in() { case $2 in *"$_newline$1$_newline"*) ;; *) return 1 ;; esac; }

_look_into() {
  IFS=$_newline
  for _line in $_some; do
    IFS=$_blanks; _size=${_line#file }; _size=${_size%% *}; _file=./${_line#* ./}
    [ -r "$_file" ] || { _say "shut $_file"; continue; }
    case $_file in
    *.index.json) _whole; _index ;;
    */.metadata) _metadata ;;
    */trainer_state.json) _whole ;;
    */train_state.json) _train_state ;;
    *)
      if _is_in "${_file##*/}" "$_tracker_names"; then _tracker
      elif [ "$_size" != 0 ]; then
        case $_file in
        *.safetensors) _safetensors "$_file" ;;
        *) ! _is_in "${_file##*.}" "$_looked_into" || _torch "$_file" ;;
        esac
      fi ;;
    esac
  done
}

_count() {
  _lines=0; _heavy=0; IFS=$_newline
  for _line in $_some; do
    _lines=$((_lines + 1))
    case $_line in 'file 0 '*) ;; *) ! _is_in "${_line##*.}" "$_looked_into" || _heavy=$((_heavy + 1)) ;; esac
  done
  IFS=$_blanks
}

_fits() { [ $_lines -le "$_most_files" ] && [ ${#_some} -le "$_most_bytes" ]; }

# STEP/./PATH of everything that may be a checkpoint: at first all that is not below a folder with a number in its name,
# then what is below those of these folders that are no checkpoints. (The find of busybox forgets `-exec {} +` within
# parentheses.)
_rank() {
  _open=.
  while [ "$_open" ]; do
    _found=$(_on_each "$_open" sh -c '
      find "$@" -mindepth 1 ! -path "*$_newline*" -type d -name "*[0-9]*" -prune -exec printf "d %s\n" {} + \
        -o ! -path "*$_newline*" -type f -exec printf "f %s\n" {} +' sh |
      grep -v '^f .*/[0-9]\{1,12\}/\|^f .*-[0-9]\{5\}-of-[0-9]\{5\}[.]' |
      grep -e '^d ' -e "[.]\($_endings\)\([.]\($_partial\)\)*\$" -e '_steps[.]pkl$' -e '-unfinished$' \
        -e "/\($_trackers\)\$" |
      sed -nE "$_ranking")
    _open=''
    if _has open/ "$_found"; then
      _say "$_found" | grep -v '^open/'
      _open=$(_say "$_found" | sed -n 's|^open/||p')
    elif [ "$_found" ]; then _say "$_found"; fi
  done
}

# List the files of one step where the listing is cut, and look into them; fails where the look ends before it. One
# more than is looked into is listed: it is the measure for the one above it.
_step() {
  [ $_looked -lt "$_enough" ] || [ $_cut ] || return 1
  if [ $# -eq 1 ] && [ -f "$1" ]; then _some=$(stat -c 'file %s %Y %b %n' "$1")
  else
    _some=$(find "$@" -type f ! -path "*$_newline*" -exec stat -c 'file %s %Y %b %n' {} + | head -c $((_most_bytes + 1)))
  fi
  _count
  if [ $# -ge 4000 ] || ! _fits || [ $_heavy -gt "$_most_weights" ]; then
    printf 'over %s\n' "$@"
    return 0
  fi
  if [ $_cut ]; then
    [ $_lines -le $_left ] && [ ${#_some} -le $_room ] || return 1
    _left=$((_left - _lines)); _room=$((_room - ${#_some}))
    _say "$_some"; printf 'listed %s\n' "$@"
    [ $_looked -lt "$_enough" ] || return 1
  fi
  _look_into
  printf 'looked %s\n' "$@"
  _looked=$((_looked + 1 + _heavy))
}

# Look into the steps from the highest number in a name down, until $_enough files were. A folder whose name is nothing
# but a number may be a date above the checkpoints: it is one itself where no other is below it.
_steps() {
  _at=; _rest=; set --
  while IFS=/ read -r _number _path; do
    [ "$_number" -le "${_up_to:-$_number}" ] || continue
    case ${_path##*/} in *[!0-9]*) ;; *) case $_named in *"/$_path/"*) continue;; esac ;; esac
    if [ "$_number" != "$_at" ] && [ $# -gt 0 ]; then
      _step "$@" || { _rest=$({ _say "$_at" "$_number"; cut -d / -f 1; } | uniq | grep -c .); break; }
      set --
    fi
    _at=$_number; [ $# -ge 4000 ] || set -- "$@" "$_path"
  done
  [ $# -eq 0 ] || [ "$_rest" ] || _step "$@" || _rest=1
  [ ! "$_rest" ] || echo "rest $_rest $_at"
}

_newest() { # COUNT LINES
  [ -z "$2" ] || _on_each "$2" stat -c '%Y %n' | sort -k 1,1nr | head -n "$1" | sed 's/^[0-9]* //'
}
_start() { _looked=0; _left=$_most_files; _room=$_most_bytes; }

list_checkpoints() {
  cd -- "$_folder" 2>/dev/null || {
    if [ -d "$_folder" ]; then echo "state=no permission to enter it"
    elif [ -e "$_folder" ]; then echo "state=not a directory"
    else echo state=missing
    fi
    return 0
  }
  [ -r . ] || { echo "state=no permission to list it"; return 0; }
  _disk=$(stat -f -c 'disk %T' .)
  case $_disk in 'disk '*) ;; *) false ;; esac && command -v find >/dev/null || {
    echo "state=find and stat, which list it, do not work there: look at them"
    return 0
  }
  echo state=there
  echo "now $(date +%s)"
  echo "$_disk"
  set -f
  _list_files
  _all=$(_rank)
  _named=$(_say "$_all" | sed -n '/^[0-9]/{/\/[0-9]*$/!p;}')
  _look_at_unnumbered
  _start
  _say "$_all" | grep '^[0-9]' | sort -t / -k 1,1nr -k 2 | _steps
  ! _has tracker/ "$_all" || _say "$_all" | sed -n 's|^tracker/||p' | while IFS= read -r _file; do _tracker; done
  _list_closed
  return 0
}

_list_files() {
  _cut=1
  _some=$(find . -type f ! -path "*$_newline*" | head -n $((_most_files + 1)))
  # shellcheck disable=SC2086
  { IFS=$_newline; set -- $_some; IFS=$_blanks; _lines=$#; }
  if _fits; then
    _some=$(_on_each "$_some" stat -c 'file %s %Y %b %n' | head -c $((_most_bytes + 1)))
    ! _fits || _cut=''
  fi
  if [ $_cut ]; then echo cut; else _say "$_some"; fi
}

# Files whose header may say another step than their name: those without a number, and the newest ones by time.
_look_at_unnumbered() {
  _plain=''
  if _has -/ "$_all"; then
    _plain=$(_say "$_all" | sed -n 's|^-/||p')
    _lines=$(_say "$_plain" | grep -c .)
    [ "$_lines" -le "$_most_unnumbered" ] || echo "unnumbered $((_lines - _most_unnumbered))"
  fi
  [ "$_up_to" ] || {
    _newest "$_most_unnumbered" "$_plain"
    case $_named in *.safetensors*)
      _newest 10 "$(_say "$_named" | sed -n 's|^[0-9]*/\(.*[.]safetensors\)$|\1|p')" ;;
    esac
  } | while IFS= read -r _file; do _start; _step "$_file"; done
}

# Folders that may not be read, links that lead nowhere, and some of those that lead out of their folder: of a data set
# there may be a link for each file.
_list_closed() {
  find . ! -path "*$_newline*" \( -type d ! -name lost+found -o -type l \( -path '*[0-9]*' -o -iname '*la*st*' \) \) -exec sh -c '
    _links=0
    for _file; do
      if [ ! -L "$_file" ]; then [ -r "$_file" ] && [ -x "$_file" ] || printf "shut %s\n" "$_file"
      elif [ -e "$_file" ]; then
        _links=$((_links + 1))
        [ $_links -gt 500 ] || case $(readlink "$_file") in /* | ../* | */../*) printf "linked %s\n" "$_file" ;; esac
      else case ${_file##*/} in *[Ll][Aa]*[Ss][Tt]*) printf "link %s\n" "$(ls -ld "$_file" | tr "\n" " ")" ;; esac; fi
    done' sh {} +
}
