# Programs that read a pipe and write a log: the training is at the other end of its pipe.
is_filter() { # NAME
  case $1 in
    tee | cat | ts | script | sed | grep | awk | gawk | mawk | rotatelogs | multilog | svlogd | cronolog | unbuffer) ;;
    *) return 1 ;;
  esac
}
