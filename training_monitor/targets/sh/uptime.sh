# The time since the boot.

read_uptime() { read -r _up _ </proc/uptime; _up=${_up%.*}${_up#*.}; } # hundredths of a second
