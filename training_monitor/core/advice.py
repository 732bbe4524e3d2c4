"""What to try after an outside tool or service refused, by its own words: one table, first match wins. Pure.

Each row has a recorded answer in tests/recorded/advice.jsonl, with its source. Words that no row has are shown as they
are, without advice: none is better than a wrong one.
"""

from __future__ import annotations

import re

from training_monitor.core.errors import (
    AccessDenied,
    CommandError,
    CommandFailed,
    LocalFailure,
    TargetNotFound,
    TargetUnreachable,
)
from training_monitor.core.frozen import dataclass
from training_monitor.core.regex import regex

QUESTIONS, PROGRAMS = "questions", "programs"  # what waits for somebody; errors


@dataclass(frozen=True, slots=True)
class Advice:
    """One row.

    Attributes:
        words: a pattern of what the tool prints.
        kind: the class of the error, if these words decide it.
        hint: what to try; it may name groups of the pattern.
    """

    words: re.Pattern[str]
    kind: type[CommandError] | None
    hint: str


@dataclass(frozen=True, slots=True)
class Advised:
    """The row that fits an answer: the class of the error, what to try, and the line where its words are."""

    kind: type[CommandError] | None
    hint: str
    line: str


_LOG_IN = "log in once in a terminal, as it says, then try again: it cannot be answered here"
_CERTIFICATE = "renew the certificate, and compare the clocks of this machine and the server"
_KEYS = "check the user and that your key is on the host: ssh-add -l"
_WEBHOOK = "make the webhook again"

_ROWS: dict[str, tuple[tuple[str, type[CommandError] | None, str], ...]] = {
    QUESTIONS: (
        (r"To sign in, use a web browser|devicelogin|login\.microsoftonline\.com/\S*device", None, _LOG_IN),
        (r"(?:visit|open|go to) the following (?:url|link|address|page)\b", None, _LOG_IN),
        (r"Enter passphrase for", None, "load the key into the agent first: ssh-add FILE"),
        (r"Enter PIN for|Confirm user presence", None, "use a key that needs no PIN or touch, or ssh-add it first"),
        (
            r"Are you sure you want to continue connecting",
            None,
            "connect once with plain ssh in a terminal, and compare the key of the host",
        ),
        (
            r"Please enter (?:Username|Password):",
            AccessDenied,
            "your kubeconfig has no credentials for this cluster: log in to it",
        ),
        (
            r"(?:Username|Password) for 'https?:|(?:^|\s)(?:password|username|login):\s*\Z",
            None,
            "save the credentials where the program finds them: it cannot be answered here",
        ),
        (
            r"\[y/n\]|\(y/n\)|\(yes/no\)|enter your [\w -]{0,40}(?:code|key|password)",
            None,
            "run it once in a terminal: it waits for an answer, and cannot be answered here",
        ),
    ),
    PROGRAMS: (
        # ---- programs that are missing
        (
            r"executable gke-gcloud-auth-plugin not found",
            AccessDenied,
            "install the plugin: gcloud components install gke-gcloud-auth-plugin",
        ),
        (
            r"executable aws-iam-authenticator not found",
            AccessDenied,
            "install aws-iam-authenticator, or let aws eks update-kubeconfig name the aws command instead",
        ),
        (
            r"executable (?:kubelogin|kubectl-oidc_login) not found|unknown command \"oidc-login\"",
            AccessDenied,
            "install kubelogin and put it on PATH (for Azure: az aks install-cli)",
        ),
        (r"exec: executable ([\w./+-]{1,80}) not found", AccessDenied, r"install \1 and put it on PATH"),
        (
            r"executable file not found|no such file or directory: unknown",
            LocalFailure,
            "this container has no `sh`; name another one: k8s://namespace/pod/container",
        ),
        (r"\b\w*sh: (?:line )?(?:\d+: )?([\w.+-]{1,60}): (?:command )?not found\s*$", None, r"install \1 there"),
        (r"\benv: \W{0,3}([\w.+-]{1,60})\W{0,3}: No such file or directory", None, r"install \1 there"),
        # ---- certificates
        (r"remote error: tls: (?:expired|bad) certificate|client certificate has expired", AccessDenied, _CERTIFICATE),
        (r"certificate has expired|expired or is not yet valid", TargetUnreachable, _CERTIFICATE),
        (
            r"certificate signed by unknown authority|unable to get local issuer certificate"
            r"|self[- ]signed certificate",
            TargetUnreachable,
            "get the kubeconfig or the certificates of this server's authority again",
        ),
        (r"certificate is valid for .*, not ", TargetUnreachable, "use a host name that the certificate is valid for"),
        # ---- rights
        (
            r"pam_slurm_adopt|no active jobs on this node",
            AccessDenied,
            "Slurm lets you in only where a job of yours runs: squeue --me lists its nodes",
        ),
        (
            r"unable to upgrade connection: (?:Forbidden|Unauthorized)",
            AccessDenied,
            "the node refuses the API server: the administrator of the cluster has to give its user nodes/proxy",
        ),
        (r"exceeded quota", AccessDenied, "free what the quota names, or ask for a larger one: kubectl get quota"),
        (
            r"admission webhook .* denied",
            AccessDenied,
            "a rule of the cluster refuses it: change what its message names",
        ),
        (r"\(NotFound\): namespaces", TargetNotFound, "check the namespace: kubectl get namespaces"),
        (
            r"container \S+ is not valid for pod",
            LocalFailure,
            "name one of the pod's containers: k8s://namespace/pod/NAME",
        ),
        (
            r"\(NotFound\)|pod .* not found",
            TargetNotFound,
            "check the pod, container and namespace: kubectl get pods -A",
        ),
        (
            r"\(Forbidden\)|is forbidden:",
            AccessDenied,
            "ask for the verb it names: kubectl auth can-i create pods --subresource=exec",
        ),
        (
            r"executable ([\w./+-]{1,80}) failed with exit code",
            AccessDenied,
            r"log in again: \1, which fetches the credentials, failed",
        ),
        (r"SSO (?:session|token)|aws sso login", AccessDenied, "log in again: aws sso login"),
        (r"gcloud auth login|Reauthentication", AccessDenied, "log in again: gcloud auth login"),
        (r"AADSTS\d+|\baz login", AccessDenied, "log in again: az login"),
        (
            r"\(Unauthorized\)|server.{0,80}Unauthorized|must be logged in|getting credentials"
            r"|asked for the client to provide credentials",
            AccessDenied,
            "log in to the cluster again",
        ),
        (
            r"(?:token|credentials?) (?:is|are|has|have)(?: been)? expired|ExpiredToken",
            AccessDenied,
            "log in again: the credentials have expired",
        ),
        (
            r"(?:context|cluster|auth info) \S+ does not exist|no context exists|context was not found",
            AccessDenied,
            "kubectl config get-contexts lists the contexts",
        ),
        # ---- ssh
        (
            r"Offending \S+ key in ([^'\n]+):\d+\r?\n(?:.*\n)*?Host key for ([^'\s]+) has changed",
            AccessDenied,
            r"if the host was really set up anew: ssh-keygen -R '\2' -f '\1'",
        ),
        (
            r"Host key verification failed|IDENTIFICATION HAS CHANGED",
            AccessDenied,
            "run plain ssh to the host: it names the line of your known_hosts files that is the reason",
        ),
        (r"UNPROTECTED PRIVATE KEY FILE", AccessDenied, "let only yourself read the key: chmod 600 FILE"),
        (
            r"Bad owner or permissions on|Bad configuration option|terminating, \d+ bad configuration",
            LocalFailure,
            "mend the ssh configuration file that it names",
        ),
        (
            r"Too many authentication failures",
            AccessDenied,
            "offer one key only: IdentityFile and IdentitiesOnly=yes in your ssh configuration (ssh-add -l lists keys)",
        ),
        (r"Permission denied \(", AccessDenied, _KEYS),
        (
            r"(?:password|account) has expired|required to change your password|account is currently not available",
            AccessDenied,
            "log in once in a terminal, or ask the administrator of the host",
        ),
        (
            r"no matching (?:host key type|key exchange method|cipher|mac) found",
            TargetUnreachable,
            "the host offers only what it names: allow that for this host in your ssh configuration",
        ),
        (
            r"Connection closed by UNKNOWN|stdio forwarding failed|administratively prohibited"
            r"|open failed: connect failed",
            TargetUnreachable,
            "look at the jump host: connect to it alone, and from it to the target",
        ),
        # ---- pods that do not run
        (
            r"localhost:8080 was refused|missing or incomplete configuration",
            TargetUnreachable,
            "kubectl has no kubeconfig here: get one for your cluster, or set KUBECONFIG",
        ),
        (
            r"completed pod",
            TargetUnreachable,
            "the pod has ended: look for the one that replaced it: kubectl get pods",
        ),
        (
            r"container not found|(?:pod|container)\b.{0,200}is not running|unable to upgrade connection"
            r"|does not have a host assigned"
            r"|waiting to start|ContainerCreating",
            TargetUnreachable,
            "look whether the pod is running: kubectl get pod",
        ),
        (
            r"error dialing backend|dial tcp \S+:10250",
            TargetUnreachable,
            "the API server does not reach the node of the pod: kubectl get nodes",
        ),
        # ---- services that are busy
        (r"too ?many ?requests", TargetUnreachable, "wait: it asks for fewer requests"),
        (
            r"\b503 Service|service ?unavailable|currently unable to handle the request",
            TargetUnreachable,
            "try again in a minute: the server, or a proxy before it, is not ready",
        ),
        (r"proxyconnect|proxy (?:error|authentication)", TargetUnreachable, "check HTTPS_PROXY and NO_PROXY"),
        (
            r"TLS handshake timeout",
            TargetUnreachable,
            "try again: the server is overloaded, or a proxy holds the connection (HTTPS_PROXY)",
        ),
        # ---- disks and networks
        (r"No space left on device|Disk quota exceeded", None, "free some space: the disk that it names is full"),
        (
            r"no such host|could not resolve|name or service not known|temporary failure in name resolution",
            TargetUnreachable,
            "check the spelling of the host name, and the name resolution here",
        ),
        (r"no route|network is unreachable", TargetUnreachable, "check the network here, and the VPN if there is one"),
        (r"\brefused\b", TargetUnreachable, "check the address and port, and that the server is up"),
        (
            r"kex_exchange_identification|ssh_exchange_identification",
            TargetUnreachable,
            "try again in a minute: the host closes connections before the login when there are many",
        ),
        (
            r"timed? ?out|unreachable|not responding",
            TargetUnreachable,
            "check the network, the VPN and firewalls, and that the server is up",
        ),
        (
            r"reset by peer|\bEOF\b|connection closed|closed idle connection|broken pipe|lost connection"
            r"|unable to connect",
            TargetUnreachable,
            "try again: the connection was cut; if that goes on, check the network and that the server is up",
        ),
    ),
    "vastai": (
        (
            r"insufficient.?(?:credit|funds|balance)|lacks? credit|not enough (?:credit|funds)",
            CommandFailed,
            "pay in at https://cloud.vast.ai/billing/",
        ),
        (
            r"\"status_code\": 40[13]|failed with error 40[13]\b|HTTPError: 40[13]\b|session (?:has )?expired",
            AccessDenied,
            "check the key of vast.ai and what it permits: vastai set api-key, VASTAI_API_KEY, or vastai tfa login",
        ),
        (
            r"\"status_code\": 429|failed with error 429\b|HTTPError: 429\b",
            TargetUnreachable,
            "wait: vast.ai asks for fewer requests",
        ),
    ),
    "telegram": (
        (r"(?:upgraded|migrated) to a supergroup", None, "put the new id of the group into the settings: chat_id"),
        (r"bot was kicked", None, "add the bot to the group again"),
        (r"not enough rights|have no rights to send|CHAT_WRITE_FORBIDDEN", None, "let the bot write in this chat"),
        (r"bot was blocked by the user", None, "unblock the bot, and press Start"),
        (r"can't initiate conversation", None, "open a chat with the bot and press Start"),
        (r"bots can't send messages to bots", None, "give the id of a person or group, not of a bot"),
        (r"user is deactivated", None, "give another id: this account was deleted"),
        (r"group chat was deactivated|chat was deleted", None, "give another id: this group was closed"),
        (r"not a member of the (?:channel|supergroup|group)", None, "add the bot to the channel or group"),
        (r"chat not found|PEER_ID_INVALID", None, "check the chat id, and open a chat with the bot and press Start"),
        (r"TOPIC_CLOSED|TOPIC_DELETED|thread not found", None, "open the topic again, or give another chat id"),
        (r"Unauthorized|Not Found", None, "check the token: @BotFather shows it"),
    ),
    "slack": (
        (r"is_archived", None, "unarchive the channel, or make a webhook for another one"),
        (r"channel_not_found", None, f"{_WEBHOOK}: its channel is gone or private"),
        (r"not_in_channel", None, "invite the app to the channel"),
        (
            r"invalid_auth|invalid_token|token_revoked|not_authed|account_inactive",
            None,
            f"{_WEBHOOK}: its secret is no longer valid",
        ),
        (r"no_service|no_active_hooks", None, f"{_WEBHOOK}: it was disabled or removed"),
        (r"no_team|team_disabled", None, "check the workspace: it is gone or disabled"),
        (
            r"action_prohibited|posting_to_general",
            None,
            "an administrator of the workspace forbids it: choose another channel",
        ),
        (r"user_not_found", None, f"{_WEBHOOK}: the person that it writes to is gone"),
    ),
    "discord": (
        (
            r"\b220001\b|thread_name or thread_id",
            None,
            "it is a forum: add ?thread_id=ID of a post to the webhook's URL, or make a webhook of a text channel",
        ),
        (r"\b10015\b|Unknown Webhook|\b50027\b", None, f"{_WEBHOOK}: it was removed"),
        (r"\b10003\b|Unknown Channel", None, "check the id: there is no such channel"),
        (r"\b10013\b|Unknown User|\b50033\b", None, "check the user id: there is no such user"),
        (
            r"\b50007\b|\b50278\b|Cannot send messages to this user",
            None,
            "share a server with the bot and allow direct messages from its members",
        ),
        (
            r"\b5000?1\b|Missing Access|\b50013\b|Missing Permissions",
            None,
            "let the bot see the channel and write there",
        ),
        (r"401: Unauthorized", None, "check the bot's token, or make the webhook again"),
    ),
    "email": (
        (r"\b535\b", None, "check the user and the password"),
        (r"\b530\b", None, "give the user and the password that the server wants"),
        (r"\b55[013]\b|refused every recipient", None, "check the address of the recipient, and that of the sender"),
    ),
    "ntfy": (
        (r"\b401\d\d\b|unauthorized", None, "check the token of the topic"),
        (r"\b403\d\d\b|forbidden", None, "check the token of the topic: it may not write there"),
        (r"\b429\d\d\b|limit reached", None, "wait: it asks for fewer messages"),
    ),
}
ADVICE: dict[str, tuple[Advice, ...]] = {
    tool: tuple(Advice(regex(words, re.IGNORECASE | re.MULTILINE), kind, hint) for words, kind, hint in rows)
    for tool, rows in _ROWS.items()
}


def find_advice(said: str, tool: str = PROGRAMS) -> Advised | None:
    """Return what the table has for an answer of a program or channel; None if its words are unknown."""
    for row in ADVICE.get(tool, ()):
        if found := row.words.search(said):
            end = said.find("\n", found.end())
            line = said[said.rfind("\n", 0, found.start()) + 1 : end if end >= 0 else len(said)]
            return Advised(row.kind, found.expand(row.hint), line.strip())
    return None
