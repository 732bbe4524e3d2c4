# Which Ray job a process belongs to, by the variable that Ray itself sets.

# Set $submission to the id of its job; empty where Ray gave it none.
read_submission() { # PID
  submission=$(grep -azs '^RAY_JOB_CONFIG_JSON_ENV_VAR=' "/proc/$1/environ" 2>/dev/null)
  case $submission in *'"job_submission_id":'*) ;; *) submission=''; return ;; esac
  submission=${submission##*'"job_submission_id":'}; submission=${submission# }; submission=${submission#\"}
  submission=${submission%%\"*}
}
