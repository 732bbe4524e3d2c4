# A range of bytes of a file.

# dd seeks, while the `tail -c +N` of busybox reads all that is before N.
print_part() { # FILE FROM COUNT
  dd bs=16384 skip=$(($2 / 16384)) <"$1" 2>/dev/null | tail -c +$(($2 % 16384 + 1)) | head -c "$3"
}
