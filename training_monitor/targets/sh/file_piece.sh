# A piece of a file of any bytes, in whole blocks.
# uses: file_state
# needs: file first length block
# paths: file

# The file is opened once, so that its size and its bytes are of the same file. A negative first byte counts from the end.
show() {
  is_readable || return 0
  exec 4<"$file"
  open=/proc/self/fd/4; [ -e $open ] || open=$file
  size=$(stat -L -c %s "$open" || wc -c <"$file"); size=$((size))
  start=$first; [ "$start" -ge 0 ] || start=$((size + start)); [ "$start" -ge 0 ] || start=0
  [ "$start" -le "$size" ] || start=$size
  skip=$((start / block)) count=$(((start % block + length + block - 1) / block))
  coding='od'; [ "$(printf x | base64)" = eA== ] && coding=base64
  echo state=read; echo "size=$size"; echo "start=$start"; echo "begin=$((skip * block))"; echo coding=$coding; echo log
  dd bs="$block" skip=$skip count=$count <"$open" | if [ $coding = base64 ]; then base64; else od -An -v -tx1; fi
}
