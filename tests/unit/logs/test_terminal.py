"""What a pane of tmux shows: each line once, and how old the last one is."""

from __future__ import annotations

from training_monitor.core.models import LogCursor, NewLog, Reply
from training_monitor.logs.sources import TERMINAL, source_named


def read(shown: str, cursor: LogCursor | None = None, age: int = 4) -> NewLog:
    question = source_named(f"{TERMINAL}/dev/pts/7", "pane").read(cursor, 0)
    return question.parse(Reply(f"state=read\nage={age}\nlog\n{shown}\n\n\n", 0, 0.1))


def steps(first: int, last: int) -> str:
    return "".join(f"step {number}/100  \n" for number in range(first, last))


def test_a_first_read_gives_what_is_shown_and_a_pane_that_is_gone_is_missing() -> None:
    new = read(steps(1, 5) + " 40%|####      |")
    assert (new.text, new.partial, new.age) == (steps(1, 5).replace("  \n", "\n"), " 40%|####      |", 4.0)
    assert [read(steps(1, 3), age=age).age for age in (-5, -7200)] == [0.0, None]
    question = source_named(f"{TERMINAL}/dev/pts/7", "pane").read(None, 0)
    assert question.parse(Reply("state=missing\n", 0, 0.1)).missing


def test_what_a_former_training_printed_is_not_that_of_this_one() -> None:
    for command in [
        "me@box:~/work$ python train.py",
        "(venv) root@box:/work# CUDA_VISIBLE_DEVICES=0 torchrun --nproc-per-node 2 train.py",
        "$ nohup /opt/venv/bin/python3.11 -m train",
        "❯ ./train.sh --steps 20",
        "box% uv run train.py",
        "➜  work git:(main) ✗ python train.py",
        "[me@box work]$ scripts/train.sh",
    ]:
        former = f"$ python other.py\n{steps(95, 101)}"
        assert read(f"{former}{command}\nloading\nstep 1/100\n 2%|#").text == f"{command}\nloading\nstep 1/100\n"
        only = read(former + command)
        assert (only.text, only.partial) == ("", command)
    for line in ["loss -> 0.5 > python", "epoch 3 # sh", "price: 5 $ a run", "100 % done", "> step"]:
        assert read(f"{steps(1, 3)}{line}\nnext\nlast").text.count("step 1/100") == 1


def test_what_was_read_is_not_read_again_while_the_pane_scrolls() -> None:
    first = read(steps(1, 50))
    second = read(steps(20, 60), first.cursor)
    third = read(steps(25, 60), second.cursor)
    assert second.text.splitlines() == [f"step {number}/100" for number in range(49, 59)]
    assert (second.reset, third.text, third.reset) == (None, "", None)
    new = read(steps(5000, 5020), read(steps(1, 50)).cursor)
    assert new.reset == "truncated" and new.text.startswith("step 5000")
