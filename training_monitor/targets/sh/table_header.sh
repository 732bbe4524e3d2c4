# The names of the columns of a table, as a field of the answer.
# needs: table
# paths: table

show_header() { printf 'header=%s\n' "$(head -c 8192 "$table" 2>/dev/null | head -n 1 | tr -d '\r')"; }
