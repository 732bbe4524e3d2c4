# What tells a process of this machine from one of the same number elsewhere: $host, $boot, $namespace (of pids).
host=$(uname -n)
read -r boot </proc/sys/kernel/random/boot_id
namespace=$(ls -l /proc/self/ns/pid); namespace=${namespace##*-> }
