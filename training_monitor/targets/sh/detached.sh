# Tries of work that goes on by itself, as process jobs; uploads/detached.py.
# uses: jobs_folder
# needs: names

# Print what the tries of these names found out.
results() {
  for name in $names; do
    [ ! -f "$_base/$name/result" ] || cat "$_base/$name/result" || return 1
  done
}
