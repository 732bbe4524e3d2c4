"""What a Ray job that has not started waits for."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.unit.fake_reply import cli
from training_monitor.core.errors import TrainingMonitorError
from training_monitor.core.models import Reply
from training_monitor.jobs.ray_waiting import waiting_question

NODES = [[{"GPU": 4.0, "CPU": 2.0, "memory": 2.0**34, "tpu": 1.0}, 2], [{"CPU": 8.0}, 1]]
USAGE = {"GPU": [3.0, 8.0], "CPU": [0.0, 12.0]}
DEMANDS = [[{"GPU": 99.0}, 1]]


def cluster(demands: Any = (), nodes: Any = NODES) -> str:
    report = {"usage": USAGE, "resourceDemand": list(demands), "nodeTypes": nodes}
    return json.dumps({"data": {"clusterStatus": {"loadMetricsReport": report}}}) + "\nhttp 200\n"


def actor(**asked: float) -> str:
    found = [{"name": "_ray_internal_job_actor_j", "required_resources": asked}]
    return json.dumps({"data": {"result": {"result": found}}}) + "\nhttp 200\n"


def waits_for(actors: str, resources: str, **record: Any) -> str | None:
    job = json.dumps({"submission_id": "j", "status": "PENDING", **record})
    return waiting_question("j").parse(Reply(f"{job}\nhttp 200\n{actors}{resources}", 0, 0.1))


def test_what_the_job_asked_for_is_compared_with_what_there_is() -> None:
    for asked, said in [
        ({"GPU": 99.0}, "99 GPUs requested, 8 exist"),
        ({"GPU": 6.0}, "6 GPUs requested, 8 exist, 5 free"),
        ({"GPU": 0.5, "CPU": 64.0}, "64 CPUs requested, 12 exist"),
        ({"npu": 2.0, "GPU": 9.0}, "9 GPUs requested, 8 exist; 2 npu requested, 0 exist"),
        ({"tpu": 2.0}, "2 tpu requested, 2 exist"),
        ({"memory": 2.0**40}, "1.0 TiB of memory requested, 32.0 GiB exist"),
    ]:
        assert waits_for(actor(**asked), cluster()) == said


def test_a_record_or_the_only_demand_says_it_where_no_actor_is_listed() -> None:
    no_list = "404: Not Found\nhttp 404\n"
    assert waits_for(no_list, cluster(), entrypoint_num_gpus=9) == "9 GPUs requested, 8 exist"
    assert waits_for(no_list, cluster(), entrypoint_resources={"npu": 1}) == "1 npu requested, 0 exist"
    assert waits_for(no_list, cluster(DEMANDS)) == "99 GPUs requested, 8 exist"


def test_what_nobody_asked_for_is_not_known_and_a_started_job_waits_for_nothing() -> None:
    for demands in ((), [*DEMANDS, [{"CPU": 50.0}, 1]]):
        assert waits_for('{"data": null}\nhttp 200\n', cluster(demands)) is None
    assert waiting_question("j").parse(Reply("", 0, 0.1)) is None


def test_the_ray_command_tells_what_there_is_of_gpus_and_cpus_alone() -> None:
    text = "Total Usage:\n 0.0/4.0 GPU\n 1.0/8.0 CPU\n\nDemands:\n {'GPU': 9.0}: 1+ pending tasks/actors\n"
    said = cli(text).output
    assert waits_for(actor(GPU=5.0), said) == "5 GPUs requested, 4 exist"
    assert waits_for(actor(npu=5.0), said) == "5 npu requested, the total is unknown"
    assert waits_for("http 404\n", said) == "9 GPUs requested, 4 exist"
    said = cli(text.replace("actors", "actors (2+ using placement groups)")).output
    assert waits_for("http 404\n", said) == "9 GPUs requested, 4 exist"


@pytest.mark.parametrize("resources", ["", "cli\nray: not found\nray exit 127\n", "{}\nhttp 200\n", "x\nhttp 503\n"])
def test_where_the_cluster_does_not_answer_it_is_not_known(resources: str) -> None:
    with pytest.raises(TrainingMonitorError):
        waits_for(actor(GPU=99.0), resources)
