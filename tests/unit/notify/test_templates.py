"""The texts people read, word for word."""

from __future__ import annotations

from training_monitor.core.values import Notice
from training_monitor.notify import templates
from training_monitor.notify.notice_text import PLAIN, render
from training_monitor.notify.templates import About


def stall(grace: float | None = 900.0, **known: int | None) -> Notice:
    about = About("llama", 1234, 5000, 1200)._replace(**known)  # type: ignore[arg-type]
    return templates.stall_detected(about, reason="no step for 20m", grace_seconds=grace)


def test_what_is_not_known_is_a_question_mark_or_left_out() -> None:
    assert stall(None).text == "No action will be taken.\nLatest checkpoint: step 1200"
    assert stall(60).text.startswith("Auto-terminating in 1 minute unless")
    assert stall(90).text.startswith("Auto-terminating in 1.5 minutes unless")
    for known, shown in (({"step": None}, "?/5000"), ({"total_steps": None}, "1234/?"), ({"total_steps": 0}, "1234/0")):
        assert dict(stall(**known).fields)["Progress"] == shown
    assert "Progress" not in dict(stall(step=None, total_steps=None).fields)
    assert stall(checkpoint_step=None).text.endswith("\nLatest checkpoint: none known")


def test_an_end_has_steps_loss_time_and_the_newest_checkpoint() -> None:
    about = About("llama", 10, 40, checkpoint_step=8, loss=0.12345, log="last words")
    found = [
        templates.finished(about, runtime=3900),
        templates.failed(about, reason="why", runtime=3900),
        templates.ended(about, reason="why", runtime=3900),
    ]
    for notice in found:
        fields = [("Progress", "10/40 (25%)"), ("Loss", "0.1235"), ("Runtime", "1h05m")]
        assert notice.fields[:3] == tuple(fields) and "Latest checkpoint: step 8" in notice.text
    assert [notice.log for notice in found] == ["", "last words", "last words"]


def every_notice() -> list[Notice]:
    run, at, saved = About("run"), About("run", 10, 40), About("run", checkpoint_step=5)
    rented = About("run", instance="vast://7")
    return [
        stall(),
        templates.terminated(saved),
        templates.not_terminated(run, reason="no answer for 30m"),
        templates.ended(run, reason="nobody can tell how"),
        templates.recovered(at),
        templates.restarted(run, reason="exit code 1", resumes_from="/out/step_60", attempt=2),
        templates.finished(at, runtime=3900, cost=1.5),
        templates.failed(saved, reason="out of memory"),
        templates.loss_nan(About("run", 10, 40, 5)),
        templates.budget_passed(run, cost=10.5, budget=10),
        *(templates.milestone(at, percent=percent, done=percent) for percent in (25, 50, 75)),
        templates.soft_limit(run, reason="more than 90 % of the disk is used"),
        templates.upload_finished(saved, destination="hf://a/b", files=1),
        templates.upload_failed(run, destination="hf://a/b", reason="no answer"),
        templates.instance_destroyed(rented),
        templates.instance_gone(rented),
        templates.instance_kept(rented, reason="the upload failed", cost_per_hour=0.5),
        templates.instance_swept(rented, reason="stuck"),
        templates.instance_not_destroyed(rented, reason="stuck", error="no answer"),
        templates.orphan_instance(rented, grace=600),
        templates.unreachable(run, seconds=600, error="no route to host"),
        templates.reached(run, seconds=3600),
        templates.state_unwritable(run, seconds=600, error="the disk is full"),
        templates.state_writable(run, seconds=3600, folder="/state"),
    ]


def test_every_event_is_its_own_and_names_the_job() -> None:
    notices = every_notice()
    assert len({notice.kind for notice in notices}) == len(notices)
    assert all(notice.training == notice.job_id == "run" or notice.job_id == "llama" for notice in notices)
    assert all(notice.title and "None" not in render(notice, PLAIN) for notice in notices)


def test_what_needs_a_person_is_high_and_what_does_not_is_low() -> None:
    high = {notice.kind for notice in every_notice() if notice.priority == "high"}
    assert {"failed", "stall_detected", "instance_kept", "loss_nan", "upload_failed"} <= high
    low = {notice.kind for notice in every_notice() if notice.priority == "low"}
    assert low == {"milestone_25", "milestone_50", "milestone_75"}


def test_what_a_notice_is_about_stands_in_its_fields() -> None:
    texts = {notice.kind: render(notice, PLAIN) for notice in every_notice()}
    assert "Reason: out of memory\n" in texts["failed"] and "Cost: $1.50" in texts["finished"]
    assert "Resumes from: /out/step_60\nAttempt: 2" in texts["restarted"]
    assert "Cost: $10.50 of $10.00" in texts["budget_passed"] and "Verified: 1 file" in texts["upload_finished"]
    assert "($0.50 per hour)" in texts["instance_kept"]
    assert "upload" in templates.terminated(About("llama"), upload=False).text
