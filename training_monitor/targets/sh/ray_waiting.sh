# What a Ray job that has not started waits for.
# uses: ray
# needs: _of_job _of_actor

# Nothing for a job that has started, or where the dashboard does not answer. Else its record, the actor that is to start
# it, and the resources of the cluster.
show_waiting() {
  _job=$(call_rest GET "$_of_job")
  case $_job in *'"status": "PENDING"'*) ;; *) return ;; esac
  printf '%s\n' "$_job"
  call_rest GET "$_of_actor"
  ask_rest GET /api/cluster_status '' show_cluster
}
