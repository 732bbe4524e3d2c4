# Packs what may be large: compressed where gzip is there, as base64, or as hexadecimal digits.

# Set $encoding to the name of what `pack` prints.
find_encoding() { encoding=hex; if command -v base64 >/dev/null; then encoding=base64; fi; }

pack() {
  if command -v gzip; then set -- gzip -c; else set -- cat; fi >/dev/null
  if [ "$encoding" = base64 ]; then "$@" | base64; else "$@" | od -An -v -tx1; fi
}
