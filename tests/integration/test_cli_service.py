"""`launch`, `queue`, `worker` and `sweep` as people and scripts run them: what is refused and what is shown."""

from __future__ import annotations

import json
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tests.integration.commands import run_command as cli
from tests.integration.conftest import Surroundings, wait_until
from tests.integration.forked import forked
from tests.job_states import STEPS
from tests.loopback.messaging import Services
from tests.loopback.vast import VastApi, destroy_request
from tests.requirements import require
from training_monitor.cli.live import Waiting
from training_monitor.cli.main import main
from training_monitor.core.store import Store
from training_monitor.rent.credits import Credits
from training_monitor.rent.queue import TrainingQueue, load_owner
from training_monitor.vast.rows import format_label
from training_monitor.vast.training_request import JobState, PriceChange, QueuedJob, Rental, TrainingRequest

LONG = "a-name-of-a-job-that-is-longer-than-most-columns-are"


def queued(job_id: str) -> QueuedJob:
    return TrainingQueue().submit(TrainingRequest("demo", command="true"), job_id)


def ended(job_id: str, state: JobState, **work: int) -> None:
    """A job as its worker leaves it at its end."""
    queue, job = TrainingQueue(), queued(job_id)
    held = queue.claim("worker", 60, job_id=job.id)
    assert held
    work_done = replace(held.work, outcome=state, **work)
    for each in (JobState.DESTROYING, JobState.SETTLING, JobState.NOTIFYING, state):
        held = queue.save(replace(held, state=each, work=work_done), "worker")


@pytest.mark.parametrize(
    "values",
    [
        {"spec": {"trigger": "t", "stepz": 3}},
        {"spec": {"trigger": 5}},
        {"command": "a", "offers": {"max": 3}},
        {"command": "a", "upload_to": "hf:me/x"},
        {"command": "a", "budget": 10**400},
        {"command": "a", "offers": {"max_price_per_hour": 10**400}},
        {"dataset": "/x", "spec": {"trigger": "t", "alpha": 10**400}},
        {"command": "a", "samples": {"url": "http://x/y", "headers": 3}},
    ],
)
def test_a_request_of_another_form_is_wrong_use(surroundings: Surroundings, values: object) -> None:
    path = surroundings.folder / "request.json"
    path.write_text(json.dumps(values))
    done = cli("rent", "launch", "--name", "demo", "--from", str(path), "--json")
    assert done.returncode == 2 and json.loads(done.stdout)["error"] in done.stderr
    assert TrainingQueue().list_jobs() == []


@pytest.mark.parametrize("wrong", [["--samples", ""], ["--trigger", "x"], ["--heartbeat", "http://127.0.0.1:9/"]])
def test_options_that_do_not_go_together_queue_nothing(surroundings: Surroundings, wrong: list[str]) -> None:
    assert cli("rent", "launch", "--name", "demo", "--command", "true", *wrong).returncode == 2
    assert TrainingQueue().list_jobs() == []


@pytest.mark.parametrize(
    ("jobs", "expected"),
    [("0", "from 1 to"), ("two", "a whole number"), ("65", "from 1 to 64"), ("9999999", "from 1 to 64")],
)
def test_a_worker_of_more_jobs_than_it_has_threads_for_is_wrong_use(vast: VastApi, jobs: str, expected: str) -> None:
    done = cli("rent", "worker", "--jobs", jobs, "--until-empty")
    assert done.returncode == 2 and expected in done.stderr


def test_a_folder_that_could_not_be_copied_is_refused_before_anything_is_queued(surroundings: Surroundings) -> None:
    data = surroundings.folder / "data"
    data.mkdir()
    (data / "a\nb.csv").write_text("1")
    done = cli("rent", "launch", "--name", "demo", "--command", "true", "--dataset", str(data))
    assert done.returncode == 2 and "a newline in its name: rename it" in done.stderr
    assert TrainingQueue().list_jobs() == []


DEMO = ("rent", "launch", "--name", "demo", "--command", "true")


@pytest.mark.parametrize(
    ("wish", "said"),
    [
        (["--gpu", "RTX 4O90"], "no RTX 4O90 is offered now; similar: RTX 4090"),
        (["--max-price", "0.1"], "no offer costs at most $0.1 per hour: allow $0.42 or more"),
        (["--budget", "0.001"], "a budget of $0.001 is too low"),
        (["--account", "anna"], "anna has $0.00, but $1.65 must be reserved"),
    ],
)
def test_what_the_market_cannot_do_is_queued_only_when_that_is_insisted_on(
    vast: VastApi, wish: list[str], said: str
) -> None:
    vast.add_offer(1)
    done = cli(*DEMO, *wish)
    assert (done.returncode, done.stdout) == (1, "") and said in done.stderr and "--force" in done.stderr
    assert TrainingQueue().list_jobs() == []
    assert json.loads(cli(*DEMO, *wish, "--json").stdout)["kind"] == "NoOffers"
    searches = len(vast.searches)
    done = cli(*DEMO, *wish, "--force")
    assert done.returncode == 0 and f"queued anyway: {said}" in done.stderr
    assert len(TrainingQueue().list_jobs()) == 1 and len(vast.searches) == searches + 1


def test_a_market_that_cannot_be_asked_refuses_nothing(vast: VastApi) -> None:
    vast.fail_with = 500
    done = cli(*DEMO, "--gpu", "nothing-like-it")
    assert done.returncode == 0 and "could not check whether any offer matches" in done.stderr
    assert len(TrainingQueue().list_jobs()) == 1


def test_a_job_that_is_queued_already_goes_on_whatever_the_market_has(vast: VastApi) -> None:
    vast.add_offer(1)
    done = cli(*DEMO, "--id", "one")
    assert done.returncode == 0 and "best offer now: RTX 4090 for $0.413 per hour" in done.stderr
    vast.offers.clear()
    assert cli(*DEMO, "--id", "one").returncode == 0 and len(vast.searches) == 1


def test_a_dataset_that_is_refused_says_how_much_more_is_wrong_with_it(surroundings: Surroundings) -> None:
    data = surroundings.folder / "data"
    data.mkdir()
    for number in range(7):
        (data / f"{number}.png").write_bytes(b"")
    done = cli("rent", "launch", "--name", "demo", "--trigger", "sks", "--dataset", str(data))
    assert done.returncode == 2 and "2.png is empty" in done.stderr and "3.png" not in done.stderr
    assert " and 5 more" in done.stderr
    assert TrainingQueue().list_jobs() == []


def test_without_the_tools_nothing_is_begun(surroundings: Surroundings) -> None:
    (surroundings.tools / "ssh").symlink_to(shutil.which("true") or "/bin/true")
    for argv in (["rent", "launch", "--name", "demo", "--command", "true", "--watch"], ["rent", "worker"]):
        done = cli(*argv, PATH=str(surroundings.tools))
        assert (
            done.returncode == 3 and "vastai is not installed on this machine. Try: pip install vastai" in done.stderr
        )
    assert TrainingQueue().list_jobs() == []


def test_a_key_that_is_refused_is_told_before_anything_is_queued(vast: VastApi) -> None:
    done = cli("rent", "launch", "--name", "demo", "--command", "true", "--watch", VASTAI_API_KEY="a-wrong-key")
    assert done.returncode == 3 and "vastai set api-key, VASTAI_API_KEY" in done.stderr, done
    assert TrainingQueue().list_jobs() == [] and "a-wrong-key" not in done.stderr + done.stdout


def test_the_queue_shows_whole_ids_in_a_pipe_and_what_is_to_end(surroundings: Surroundings) -> None:
    queued(LONG)
    assert TrainingQueue().claim("busy-worker", 60, LONG)
    done = cli("rent", "queue", LONG, "--cancel", "--reason", "enough")
    assert done.returncode == 0 and "busy-worker holds the job and will end it" in done.stderr
    done = cli("rent", "queue")
    assert done.stdout.splitlines()[1].split()[:2] == [LONG, "QUEUED*"]
    assert "* its worker will end it" in done.stderr
    assert "a stop was requested: enough" in cli("rent", "queue", LONG).stdout


def test_the_queue_shows_a_limit_that_a_job_has_passed(surroundings: Surroundings) -> None:
    """Also where no worker is there to report it."""
    request = TrainingRequest("demo", command="true", soft_timeout=60.0, budget=9.0)
    TrainingQueue().submit(request, "one")
    held = TrainingQueue().claim("worker", 60, "one")
    assert held and "!" not in cli("rent", "queue").stderr
    rental = Rental(7, 1, 0.4, time.time() - 600, prices=(PriceChange(time.time() - 300, 60.0),))
    TrainingQueue().save(replace(held, work=replace(held.work, instance_id=7, rentals=(rental,))), "worker")
    assert "! one: soft timeout: 10m" in cli("rent", "queue").stderr
    shown = cli("rent", "queue", "one").stdout
    assert "  ! soft timeout: 10m" in shown and "$60.00/h" in shown and "  cost $5.0" in shown
    [told] = json.loads(cli("rent", "queue", "--json").stdout)["jobs"]
    assert (told["limit"]["kind"], told["limit"]["ends"]) == ("soft_timeout", False) and told["total_cost"] > 5.0


def test_a_sweep_ends_a_job_that_no_worker_has(vast: VastApi) -> None:
    owner = load_owner(Store())
    request = TrainingRequest("demo", command="true")
    TrainingQueue().submit(request, "left")
    held = TrainingQueue().claim("worker", 600, "left")
    assert held
    vast.add_instance(7, label=format_label(owner, "left", 1), start_date=time.time() - 60, ssh_port=1)
    work = replace(held.work, attempt=1, instance_id=7, outcome=JobState.COMPLETED, reason="completed")
    TrainingQueue().save(replace(held, state=JobState.DESTROYING, work=work), "worker")
    assert cli("rent", "sweep").returncode == 0 and vast.instances  # its worker has it
    TrainingQueue().release("left", "worker")
    done = cli("rent", "sweep")
    assert done.returncode == 1 and "7 would be destroyed: its job is ending and has no worker" in done.stdout
    assert "job left would be ended: completed: completed" in done.stdout and vast.instances
    done = cli("rent", "sweep", "--force")
    assert done.returncode == 0 and vast.instances == {} and "7 destroyed: " in done.stdout
    assert "job left is completed: " in done.stdout and "nothing was destroyed" not in done.stderr
    assert TrainingQueue().get("left").state is JobState.COMPLETED


def test_a_job_that_nobody_holds_is_cancelled_without_a_worker(surroundings: Surroundings) -> None:
    Credits().deposit("anna", 10.0, "card")
    TrainingQueue().submit(TrainingRequest("demo", command="true", account="anna"), "one")
    Credits().reserve("anna", "one", 4.0)
    done = cli("rent", "queue", "one", "--cancel", "--reason", "enough")
    assert done.returncode == 0 and done.stdout.splitlines()[:2] == ["one  CANCELLED", "  enough"]
    assert "the job has ended and has no machine; its reservation was returned to anna" in done.stderr
    assert Credits().balance("anna") == 10.0 and TrainingQueue().claim("w", 60) is None
    again = cli("rent", "queue", "one", "--cancel")
    assert again.returncode == 1 and "one has already ended: CANCELLED" in again.stderr


def test_a_job_that_was_cancelled_beside_a_worker_that_tells_is_told_once(surroundings: Surroundings) -> None:
    require("vastai")
    queued("before")
    assert cli("rent", "queue", "before", "--cancel").returncode == 0
    with started("rent", "worker", "--no-sweep", "--notify") as worker:
        assert wait_until(lambda: "nothing to do" in worker(), 60), worker()
        queued("one")
        assert cli("rent", "queue", "one", "--cancel", "--reason", "enough").returncode == 0
        assert wait_until(lambda: bool(Store().recent_notices()), 60), worker()
    [kept] = Store().recent_notices()
    told = kept.notice
    assert (told.kind, told.training, told.command) == ("job_ended", "one", "training-monitor rent queue one")
    assert dict(told.fields)["Reason"] == "enough"


def test_a_job_that_is_over_says_so(surroundings: Surroundings) -> None:
    ended("done", JobState.COMPLETED, step=14, saved_step=100, total_steps=100)
    assert "step 100 of 100" in cli("rent", "queue", "done").stdout
    done = cli("rent", "queue", "done", "--cancel", "--json")
    assert done.returncode == 1 and "has already ended" in json.loads(done.stdout)["error"]
    assert cli("rent", "queue", "nobody").returncode == 2
    again = cli("rent", "launch", "--name", "demo", "--command", "true", "--id", "done")
    assert again.returncode == 0 and "COMPLETED" in again.stdout and "worker" not in again.stderr


def test_a_sweep_of_everything_leaves_nobody_alone_in_its_words(vast: VastApi) -> None:
    label = format_label(load_owner(Store()), "ghost", 1)
    vast.add_instance(7, label=label, start_date=time.time() - 7200)
    vast.add_instance(8, label="somebody's")
    done = cli("rent", "sweep", "--all")
    assert done.returncode == 1 and "7 would be destroyed" in done.stdout and "8 would be destroyed" in done.stdout
    assert "left alone" not in done.stdout and "nothing was destroyed" in done.stderr
    done = cli("rent", "sweep", "--all", "--force", "--confirm", "yes")
    assert done.returncode == 2 and "'destroy all 2 instances'" in done.stderr
    assert cli("rent", "sweep", "--force", "--confirm", "destroy all 2 instances").returncode == 2
    assert vast.destroyed() == []


def test_a_sweep_says_of_every_machine_what_it_is_and_why_it_stays_or_goes(vast: VastApi) -> None:
    owner, rented = load_owner(Store()), {"start_date": time.time() - 5 * 3600}
    ended("done", JobState.FAILED)
    queued("busy")
    held = TrainingQueue().claim("host-1", 600, "busy")
    assert held
    for state in STEPS[1 : STEPS.index(JobState.TRAINING) + 1]:
        work = replace(held.work, attempt=1, instance_id=1, step=12, total_steps=40)
        held = TrainingQueue().save(replace(held, state=state, work=work), "host-1")
    for number, job_id in enumerate(("busy", "done", "nobody"), 1):
        vast.add_instance(number, label=format_label(owner, job_id, 1), **rented)
    vast.add_instance(4, label="somebody's")
    done = cli("rent", "sweep")
    shown = re.sub("destroyed in (10m|9m5[0-9]s)", "goes soon", done.stdout)
    assert done.returncode == 1 and shown.splitlines() == [
        "4 instances checked",
        "  2 would be destroyed: Training FAILED but instance not terminated, $0.500 per hour",
        "  1 stays (job busy): its job is TRAINING, step 12 of 40, held by host-1, $0.500 per hour",
        "  3 stays (job nobody): Instance exceeded max runtime (5.00h > 4.0h limit); goes soon if nothing changes, "
        "$0.500 per hour",
        '  4 was not rented by this package labelled "somebody\'s", and is left alone, $0.500 per hour',
    ]
    kept = {each["instance_id"]: each for each in json.loads(cli("rent", "sweep", "--json").stdout)["kept"]}
    assert kept.keys() == {1, 3} and (kept[1]["kind"], kept[1]["seconds_left"]) == ("at_work", None)
    done = cli("rent", "sweep", "--force")
    assert done.returncode == 0 and sorted(vast.instances) == [1, 3, 4]
    assert "destroying instance 2: Training FAILED" in done.stderr


@contextmanager
def started(*argv: str) -> Iterator[Callable[[], str]]:
    """A command that goes on meanwhile, and tells of a silence of one second; what it has said so far."""
    with tempfile.NamedTemporaryFile() as said, forked(argv, Path(said.name), soon_impatient):
        yield lambda: Path(said.name).read_text()


def soon_impatient(argv: Sequence[str]) -> int:
    assert Waiting.__init__.__kwdefaults__
    Waiting.__init__.__kwdefaults__["every"] = 1.0
    return main(argv)


def test_a_command_that_waits_says_for_what(vast: VastApi) -> None:
    vast.add_instance(1, label=format_label(load_owner(Store()), "done", 1))
    ended("done", JobState.FAILED)
    vast.hang = destroy_request(1)
    with started("rent", "worker", "--no-sweep") as worker, started("rent", "sweep", "--force") as sweep:
        assert wait_until(lambda: "nothing to do: no job is waiting; checking again every 10s" in worker(), 60), (
            worker()
        )
        assert wait_until(lambda: "destroying instance 1: Training FAILED" in sweep(), 60), sweep()
        assert wait_until(lambda: re.search(r"destroying instance 1: .*: no update for \d+s\n", sweep()), 60), sweep()


def test_a_launch_that_is_watched_pings_a_dead_man_service(vast: VastApi) -> None:
    vast.add_offer(1)
    queued("one")
    assert TrainingQueue().claim("host-1", 600, "one")
    with Services() as services:
        words = ("--name", "demo", "--command", "true", "--id", "one", "--watch", "--heartbeat", services.heartbeat)
        with started("rent", "launch", *words) as launch:
            assert wait_until(lambda: services.pings > 1, 60), launch()


def test_a_job_that_another_worker_has_is_told_of_while_it_is_watched(vast: VastApi) -> None:
    vast.add_offer(1)
    queued("one")
    assert TrainingQueue().claim("host-1", 600, "one")
    with started("rent", "launch", "--name", "demo", "--command", "true", "--id", "one", "--watch") as launch:
        assert wait_until(lambda: "host-1 holds the job" in launch(), 60), launch()
        assert wait_until(lambda: re.search("one is queued, held by host-1: no update for \\d+s", launch()), 60), (
            launch()
        )
