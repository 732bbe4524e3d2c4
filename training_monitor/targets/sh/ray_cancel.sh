# Ends an actor of Ray's. Where `ray` is older than its command kill-actor, its Python does the same.
# needs: _actor

kill_actor() {
  case ${RAY_ADDRESS:-} in http*) unset RAY_ADDRESS ;; esac
  ray kill-actor --force --no-restart --namespace SUPERVISOR_ACTOR_RAY_NAMESPACE --name "$_actor" 2>&1 || python3 -c '
import sys, ray
ray.init("auto", log_to_driver=False)
ray.kill(ray.get_actor(sys.argv[1], namespace="SUPERVISOR_ACTOR_RAY_NAMESPACE"))
' "$_actor" 2>&1
}
