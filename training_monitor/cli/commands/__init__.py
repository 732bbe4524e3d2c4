"""The commands, a file each: `declare` what it takes, `run` it, and its examples; `command_table` lists them."""
