# Replies made of parts, which begin with a line of a random word and a key: runs/remote_answers.py reads them.
# needs: word

part() { printf '\n%s %s\n' "$word" "$1"; }

# Print the last part, and end the whole script.
finish() {
  part "$1"
  printf %s "${2-}"
  exit 0
}
