# Pieces of $file (or all of it) sent to presigned URLs, as the command of a process job. TM_PIECES has a line for each:
# part `number` is `count` MiB from MiB `skip` on, number 0 is the whole file. uploads/pieces.py reads what is written.
# uses: curl
# needs: file size total begun

# Send them in turn, to the first that fails; $begun is the upload in parts that was begun for them.
send_all() {
  pieces=$TM_PIECES; unset TM_PIECES
  [ "$(stat -L -c %s "$file")" = "$size" ] || { echo "$file is not there as it was: another size"; return 3; }
  [ -z "$begun" ] || note "begun $begun"
  printf '%s\n' "$pieces" | while read -r number skip count url; do send || exit 1; done
}

note() { printf '%s\n' "$1" >>"$TRAINING_MONITOR_JOB/result"; }

send() {
  if [ "$number" = 0 ]; then sum=$(sum <"$file"); else sum=$(part | sum); fi
  answer=$(put | head -c 20000 | hide_urls)
  http=$(find_last 's/^http=//p'); code=$(find_last 's/^curl=//p')
  etag=$(find_last 's/^[Ee][Tt][Aa][Gg]: *//p' | tr -d '" ')
  kms=$(find_last '/^[Xx]-[Aa]mz-[Ss]erver-[Ss]ide-[Ee]ncryption: *aws:kms/p; /encryption-customer-algorithm:/p')
  said=$(find_last 's/^curl: //p')
  [ "$said" ] || said="$(find_last 's/.*<Code>\([^<]*\)<.*/\1/p') $(find_last 's/.*<Message>\([^<]*\)<.*/\1/p')"
  note "piece $number md5=$sum http=$http curl=$code kms=${kms:+yes} etag=$etag said=$said"
  case $code.$http in
  0.2??) echo "sent $number of $total" ;;
  *) printf '%s\n' "not sent $number of $total: $said"; return 1 ;;
  esac
}

# curl holds a part in memory, so that its length is known.
put() {
  if [ "$number" = 0 ]; then curl_url --upload-file "$file"
  else part | { curl_url --request PUT --header 'Content-Type:' --data-binary @/dev/fd/3; } 3<&0; fi 2>&1
  echo "curl=$?"
}

part() { dd if="$file" bs=1048576 skip="$skip" count="$count" 2>/dev/null; }

sum() { if command -v md5sum >/dev/null; then digest=$(md5sum); echo "${digest%% *}"; else cat >/dev/null; fi; }

find_last() { printf '%s\n' "$answer" | sed -n "$1" | tail -n 1 | tr -cd '[:print:]' | head -c 300; }
