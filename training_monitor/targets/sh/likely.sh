# What could be a training by its command line: $likely, a pattern of grep.
likely='python|pypy|train|tune|torch|deepspeed|accelerate|mpirun|mpiexec|srun|axolotl|llamafactory|lightning|fabric'
likely="$likely|composer|litgpt|swift|nemo|ray::|sft|dpo|grpo|ppo|rlhf"

list_likely() { grep -lsE "$likely" /proc/[0-9]*/cmdline; }
