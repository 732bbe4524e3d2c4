# What a Ray job that has not started waits for.
# uses: ray
# needs: _job_path _actor_path

# Nothing for a job that has started, or where the dashboard does not answer. Else its record, the actor that is to start
# it, and the resources of the cluster.
show_waiting() {
  _job=$(call_rest GET "$_job_path")
  case $_job in *'"status": "PENDING"'*) ;; *) return ;; esac
  printf '%s\n' "$_job"
  call_rest GET "$_actor_path"
  ask_rest GET /api/cluster_status '' show_cluster
}
