# A range of bytes of a file.

# dd seeks, while the `tail -c +N` of busybox reads all that is before N.
print_part() { # FILE FROM COUNT
  if [ "$3" -le 256 ]; then dd bs=1 skip="$2" count="$3" <"$1" 2>/dev/null
  elif [ "$2" -lt 16384 ]; then tail -c +$(($2 + 1)) <"$1" | head -c "$3"
  else dd bs=16384 skip=$(($2 / 16384)) <"$1" 2>/dev/null | tail -c +$(($2 % 16384 + 1)) | head -c "$3"; fi
}
