"""What a target prints of its processes when it is searched for trainings."""

from __future__ import annotations

WORD, SPELLING = "0a1b2c", "/.//./"
FACTS = "boot=b0\nself=900\nup=1000.00\nhz=100"


def reply(
    *processes: dict[str, str], facts: str = FACTS, word: str = WORD, spelling: str = SPELLING, **parts: str
) -> str:
    """What the target prints of these processes; `links` and `fds` hold what `ls` says behind the date."""
    ls = "l-wx------ 1 0 0 64 Nov 22 10:28"
    table, command, links, environment, files = "", "", "", "", ""
    for each in processes:
        pid = each["pid"]
        parent, start = each.get("parent", "1"), each.get("start", "5000")
        session = each.get("session", pid)
        name = each.get("name", "python3")
        table += f"proc {pid} {each.get('state', 'S')} {parent} {pid} {session} 1 1 1 1 {start} {name}\n"
        if "command" in each:
            command += f"\n==> {spelling}proc/{pid}/cmdline <==\n" + each["command"].replace(" ", "\x1f") + "\x1f"
        if "cwd" in each:
            links += f"{ls} {spelling}proc/{pid}/cwd -> {each['cwd']}\n"
        if "space" in each:
            links += f"{ls} {spelling}proc/{pid}/ns/mnt -> {each['space']}\n"
        if "network" in each:
            links += f"{ls} {spelling}proc/{pid}/ns/net -> {each['network']}\n"
        if "environment" in each:
            environment += f"==> {spelling}proc/{pid}/environ <==\n{each['environment']}\n"
        if "fds" in each:
            opened = "".join(f"{ls} {line}\n" for line in each["fds"].split("|"))
            files += f"\n{spelling}proc/{pid}/fd:\ntotal 0\n{opened}"
    links += f"{ls} {spelling}proc/self/ns/mnt -> mnt:[1]\n"
    body = {"facts": facts, "table": table, "unlisted": "0", "command": command, "links": links}
    body |= {"environment": environment, "files": f"{files}\n{spelling}proc/self/ns:\ntotal 0", **parts, "end": ""}
    return "".join(f"\n{word} {key}\n{text}\n" for key, text in body.items())
