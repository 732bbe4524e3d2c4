"""Suggest a fix for an error message of an external tool or service. Pure.

The last line that matches a row decides; if several rows match this line, the first of them does. A row with `then`
describes the cause of a later line, and takes precedence over the row of that line. For each row there is a recorded
message in tests/recorded/advice, with its source. A message that matches no row is shown without advice, because no
advice is better than wrong advice.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from training_monitor.core.errors import (
    AccessDenied,
    CommandError,
    CommandFailed,
    LocalFailure,
    TargetEnded,
    TargetNotFound,
    TargetUnreachable,
)
from training_monitor.core.regex import regex

QUESTIONS, PROGRAMS = "questions", "programs"  # prompts that wait for input; errors of any program


class Advice(NamedTuple):
    """One row.

    Attributes:
        words: a pattern for the tool's message.
        kind: the class of the error, if the message determines it.
        hint: the suggested fix, which may refer to groups of the pattern.
        then: a pattern for later lines that this message explains: if such a line would decide, this row does instead.
    """

    words: re.Pattern[str]
    kind: type[CommandError] | None
    hint: str
    then: re.Pattern[str] | None = None


class Advised(NamedTuple):
    """The advice for a message: the class of the error, the suggested fix, and the line that matched."""

    kind: type[CommandError] | None
    hint: str
    line: str


_LOG_IN = (
    "log in once in a terminal, as the message describes, then try again: prompts cannot be answered in the background"
)
_WAITS = "run the program once in a terminal, and answer its prompt there"
_CERTIFICATE = "renew the certificate, and check that the clocks of this machine and the server agree"
_KEYS = "check the user name, and check that the host has your public key (ssh-add -l lists the keys in your agent)"
_NOT_LET_IN = "log in once in a terminal to set a new password, or ask the host's administrator for one"
_SCHEME = "correct the scheme (http or https) or the port of the server's URL in the kubeconfig"
_CONTEXTS = "choose an existing context: kubectl config get-contexts lists them"
_NOT_RUNNING = "check whether the pod is running: kubectl get pod"
_INSTALL = r"install \1 on the machine that printed the message"
_NO_SSH_KEY = r"Permission denied \((?:publickey|password|keyboard|gssapi|hostbased)"
_JUMP = r"Connection closed by UNKNOWN"
# Lines that are only consequences of earlier lines.
_AFTER_KEY = rf"{_NO_SSH_KEY}|{_JUMP}|Too many authentication failures"
_AFTER_LOGIN = (
    rf"executable \S+ failed with exit code|getting credentials|{_JUMP}|must be logged in"
    r"|asked for the client to provide credentials"
)
_AFTER_CUT = r"Connection (?:to \S+ )?closed by(?! UNKNOWN)|Connection reset by"

# A pattern, a hint and an optional `then`; or the kind of the rows that follow (None for the first rows).
_Row = tuple[str, str] | tuple[str, str, str] | type[CommandError] | None
_ROWS: dict[str, tuple[_Row, ...]] = {
    QUESTIONS: (
        (
            r"To sign in, use a web browser|\bdevicelogin\b|login\.microsoftonline\.com/\S*device"
            r"|(?:visit|open|go to) the following (?:url|link|address|page)\b"
            r"|to login to Rancher Server visit|To authenticate, visit:"
            r"|browser window should have opened at the following"
            r"|open it by clicking on the link:",
            _LOG_IN,
        ),
        (r"Enter passphrase for", "load the key into the ssh agent first: ssh-add FILE"),
        (
            r"Enter PIN for|Confirm user presence|Tap any security key",
            "use a key that needs no PIN or touch, or load this key into the ssh agent first (ssh-add)",
        ),
        (
            r"Are you sure you want to continue connecting",
            "connect once with plain ssh in a terminal, check the fingerprint of the host key, and accept the key",
        ),
        AccessDenied,
        (r"Please enter (?:Username|Password):", "log in to the cluster: your kubeconfig has no credentials for it"),
        None,
        (
            r"(?:Enter (?:an OTP|MFA|the verification) code\b[^\n]{0,200}:|Verification code:"
            r"|Passcode or option \([\d-]+\):"
            r"|One-time password \([^)\n]{1,40}\)[^\n]{0,100}:|Enter password for Teleport user [^\n]{1,100}:)\s*\Z",
            _LOG_IN,
        ),
        (
            r"(?:Username|Password) for 'https?:|(?:^|\s)(?:password|username|(?<!last )login):\s*\Z"
            r"|\[sudo\] password for [^\n]{1,100}:\s*\Z",
            "save the credentials where the program looks for them: the prompt cannot be answered in the background",
        ),
        (
            r"\[y/n\]|\(y/n\)|\(yes/no\)|enter your [\w -]{0,40}(?:code|key|password|token)"
            r"|Proceed \(\[y\]/n\)\?|(?:Enter your choice|Enter a value):\s*\Z",
            _WAITS,
        ),
    ),
    "kubectl": (
        # ---- the plugin that fetches the credentials
        AccessDenied,
        (
            r"executable gke-gcloud-auth-plugin not found",
            "install the plugin: gcloud components install gke-gcloud-auth-plugin",
        ),
        (
            r"executable aws-iam-authenticator not found",
            "install aws-iam-authenticator, or run aws eks update-kubeconfig to use the aws command instead",
        ),
        (
            r"executable (?:kubelogin|kubectl-oidc_login) not found|unknown command \"oidc-login\"",
            "install kubelogin and put it on PATH (for Azure: az aks install-cli)",
            _AFTER_LOGIN,
        ),
        (r"exec: executable ([\w./+-]{1,80}) not found", r"install \1 and put it on PATH"),
        (
            r"no kind \"ExecCredential\"|invalid apiVersion \"client\.authentication\.k8s\.io",
            "update the login plugin, and download the kubeconfig again: the two use different API versions",
        ),
        (
            r"The (?:gcp|azure) auth plugin has been removed|no Auth Provider found for name",
            "get a kubeconfig that uses your cloud's login plugin: this kubectl does not support the old login method",
        ),
        (
            r"executable ([\w./+-]{1,80}) failed with exit code",
            r"log in again: \1 could not obtain credentials",
        ),
        # ---- the container
        TargetUnreachable,
        (
            r"chdir to cwd \(",
            "create or mount the container's working directory, or change workingDir: the directory does not exist",
        ),
        LocalFailure,
        (
            r"exec: \"[^\"\n]{1,200}\":.{0,200}(?:executable file not found|no such file or directory)",
            "choose another container (k8s://namespace/pod/container): this one has no `sh`",
        ),
        (
            r"container \S+ is not valid for pod|a container name must be specified for pod",
            "specify one of the pod's containers: k8s://namespace/pod/NAME",
        ),
        # ---- the node
        TargetUnreachable,
        (
            r"error dialing backend: .{0,200}(?:x509:|tls:)",
            "ask the administrator to renew the node's certificate: the API server does not accept it",
        ),
        (
            r"error dialing backend|dial tcp \S+:10250|\(NotFound\): nodes \"",
            "check the pod's node (kubectl get nodes): the API server cannot reach it",
        ),
        AccessDenied,
        (
            r"unable to upgrade connection: (?:Forbidden|Unauthorized|Authorization error)"
            r"|resource=nodes, subresource=proxy",
            "ask the cluster's administrator to grant the nodes/proxy permission to the API server's user",
        ),
        # ---- the connection to the API server
        (
            r"tls: certificate required",
            "get a kubeconfig with a client certificate: the server requires one, and your kubeconfig has none",
        ),
        TargetUnreachable,
        (
            r"server gave HTTP response to HTTPS client|first record does not look like a TLS handshake"
            r"|malformed HTTP response|Client sent an HTTP request to an HTTPS server",
            _SCHEME,
        ),
        (
            r"Unable to connect to the server: Forbidden\s*$|parsing HTTP 407|socks connect\b|proxyconnect",
            "check the environment variables HTTPS_PROXY and NO_PROXY",
            r"was refused - did you specify",
        ),
        AccessDenied,
        (
            r"oauth2: cannot fetch token|oauth2: \"?invalid_grant|No valid id-token, and cannot refresh",
            "log in to the cluster again: the saved login could not be renewed",
        ),
        # ---- the configuration
        TargetUnreachable,
        (
            r"localhost:8080 was refused|missing or incomplete configuration|no configuration has been provided",
            "kubectl found no kubeconfig: get one for your cluster, or set KUBECONFIG; if you mean a host, write "
            "ssh://HOST; if you mean a log on this machine, use the target local and the path of the log",
        ),
        AccessDenied,
        (r"(?:context|cluster|auth info) \S+ does not exist|no context exists|context was not found", _CONTEXTS),
        LocalFailure,
        (r"current-context is not set", _CONTEXTS),
        (
            r"error loading config file|unable to read (?:client-cert|client-key|certificate-authority)",
            "fix the kubeconfig, or the file named in the message",
        ),
        # ---- rights
        AccessDenied,
        (
            r"exceeded quota",
            "free up some of the resources named in the message, or request a larger quota (see kubectl get quota)",
        ),
        (
            r"violates PodSecurity",
            "change the securityContext of the pod as the message describes, or use a namespace that permits this pod",
        ),
        (
            r"admission webhook .* denied",
            "change the fields named in the message: an admission webhook of the cluster rejected the request",
        ),
        (
            r"\"system:anonymous\"|\(Unauthorized\)|server.{0,80}Unauthorized|must be logged in"
            r"|getting credentials|asked for the client to provide credentials",
            "log in to the cluster again",
        ),
        (
            r"is forbidden: .{0,300}cannot (\w{1,20}) resource \"([a-z.]{1,60})/([a-z]{1,40})\"",
            r"request the permission named in the message; to check it, run: kubectl auth can-i \1 \2 --subresource=\3",
        ),
        (
            r"is forbidden: .{0,300}cannot (\w{1,20}) resource \"([a-z.]{1,60})\"",
            r"request the permission named in the message; to check it, run: kubectl auth can-i \1 \2",
        ),
        (r"\(Forbidden\)|is forbidden:", "ask the cluster's administrator for the permission named in the message"),
        # ---- what is not there, or does not run
        TargetNotFound,
        (r"\(NotFound\): namespaces", "check the namespace: kubectl get namespaces"),
        (r"\(NotFound\): (?!pods )([a-z][a-z.]{1,60}) \"", r"check the name and the namespace: kubectl get \1 -A"),
        (
            r"\(NotFound\)|(?<![\w.])pods? \S+ not found",
            "check the pod, container and namespace: kubectl get pods -A; "
            "a job that is suspended or over its quota has no pods",
        ),
        TargetEnded,
        (r"completed pod", "find the pod that replaced this one (kubectl get pods): this pod has completed"),
        TargetUnreachable,
        (
            r"waiting to start: (?:CrashLoopBackOff|.{0,60}can't be pulled)",
            "find out why the container does not start: see kubectl describe pod and kubectl logs -p (previous log)",
        ),
        (
            r"container not found|(?:pod|container)\b.{0,200}is not (?:created or )?running"
            r"|CONTAINER_EXITED|cannot exec in a stopped container|no running task found"
            r"|unable to upgrade connection|does not have a host assigned|waiting to start|ContainerCreating",
            _NOT_RUNNING,
        ),
        # ---- a server that is busy
        (
            r"\(TooManyRequests\)|received too many requests",
            "wait, then try again: the API server limits the request rate",
        ),
        (
            r"Error from server \(Timeout\)|etcdserver: (?:request timed out|leader changed)",
            "try again: the API server's database (etcd) was too slow to respond",
        ),
    ),
    "ssh": (
        AccessDenied,
        (
            r"Offending \S+ key in ([^'\n]+):\d+\r?\n(?:.*\n){0,6}?Host key for ([^'\s]+) has changed",
            r"if the host was really reinstalled, remove its old key: ssh-keygen -R '\2' -f '\1'",
            rf"Host key for |Host key verification failed|{_JUMP}",
        ),
        (
            r"Host key verification failed|IDENTIFICATION HAS CHANGED|Host key for \S+ has changed",
            "connect to the host with plain ssh, which shows the known_hosts line that does not match the host key",
            _JUMP,
        ),
        LocalFailure,
        (
            r"\bexec: ([\w.+-]{1,60}): not found(?=[\s\S]{0,400}(?:UNKNOWN|kex_exchange))",
            r"install \1 on this machine: ProxyCommand in your ssh configuration uses it",
            rf"{_JUMP}|kex_exchange_identification",
        ),
        # ---- keys
        AccessDenied,
        (r"UNPROTECTED PRIVATE KEY FILE", "make the key readable only by you: chmod 600 FILE", _AFTER_KEY),
        (
            r"no mutual signature (?:supported|algorithm)",
            "use an ed25519 key, or set PubkeyAcceptedAlgorithms +ssh-rsa for this host in your ssh configuration",
            _AFTER_KEY,
        ),
        (r"agent refused operation", "load the key again with ssh-add FILE: the agent refused to use it", _AFTER_KEY),
        (r"signing failed for .{0,300}device not found", "plug in the security key that holds the ssh key", _AFTER_KEY),
        (r"Certificate invalid: expired", "renew the ssh certificate of your key", _AFTER_KEY),
        (
            r"^Load key \"[^\"\n]{1,300}\": (?:error in libcrypto|invalid format|Permission denied)",
            "check the key file named in the message: it is damaged, unreadable or in an unsupported format",
            _AFTER_KEY,
        ),
        (
            r"no such identity: .{1,300}: No such file",
            "set IdentityFile in your ssh configuration to an existing key file",
            _AFTER_KEY,
        ),
        (r"No Kerberos credentials available", "get a Kerberos ticket: kinit", _AFTER_KEY),
        (r"Permission denied \(gssapi[\w,-]*\)", "get a Kerberos ticket: kinit"),
        (
            r"Too many authentication failures",
            "offer only one key: set IdentityFile and IdentitiesOnly=yes for this host in your ssh configuration",
            rf"{_JUMP}|{_AFTER_CUT}|^Disconnected from",
        ),
        (rf"{_NO_SSH_KEY}|No supported authentication methods available", _KEYS, _JUMP),
        # ---- accounts
        (
            r"pam_slurm_adopt|no active jobs on this node",
            "choose a node on which one of your jobs is running (see squeue --me): Slurm admits you only to such nodes",
            _AFTER_CUT,
        ),
        (
            r"account is currently not available|account has expired|Please log ?in as the user \"",
            "log in as another user, or ask the administrator of the host: this account cannot log in",
            _AFTER_CUT,
        ),
        (r"password has expired|Password expired\. Change|required to change your password", _NOT_LET_IN, _AFTER_CUT),
        TargetUnreachable,
        (
            r"Too many logins for",
            "close other sessions of this user: the host limits the number of logins per user",
            _AFTER_CUT,
        ),
        (
            r"pam_nologin|System is booting up|System is going down",
            "try again in a few minutes: the host is starting up or shutting down",
            _AFTER_CUT,
        ),
        (
            r"tailnet policy does not permit",
            "ask the administrator of your tailnet for access: its policy (ACL) does not permit this ssh connection",
            _AFTER_CUT,
        ),
        (
            r"Your SSH client doesn't support PTY",
            "connect to the pod's exposed TCP port instead: the provider's ssh proxy runs no commands, only terminals",
        ),
        # ---- the configuration
        LocalFailure,
        (
            r"Bad owner or permissions on|Bad configuration option|terminating, \d+ bad configuration"
            r"|^Bad port '|line \d+: (?:Bad number|no argument after keyword)|line \d+: Missing argument",
            "fix the ssh configuration: the message describes the error",
        ),
        # ---- the connection
        TargetUnreachable,
        (
            r"no matching (?:host key type|key exchange method|cipher|mac) found",
            "configure ssh to allow one of the algorithms in the message for this host: the host offers no others",
            _JUMP,
        ),
        (
            r"banner line contains invalid characters",
            "check the port: the program listening on this port is not an ssh server",
            rf"{_AFTER_CUT}|banner exchange",
        ),
        (
            r"Connection closed by UNKNOWN|stdio forwarding failed|administratively prohibited"
            r"|open failed: connect failed",
            "check the jump host: first connect only to the jump host, then from there to the target",
        ),
        (
            r"Session open refused by peer|shell request failed on channel",
            "close other sessions: this connection (see MaxSessions) or this user has reached the host's session limit",
        ),
        (
            r"Error response from daemon: .{0,200}is not running",
            "start the container on the host (docker ps -a lists the containers)",
        ),
        (
            r"kex_exchange_identification|ssh_exchange_identification",
            "try again in a minute: the host has too many connections, and is closing new ones before the login",
            _AFTER_CUT,
        ),
    ),
    PROGRAMS: (
        # ---- logins; plugins of kubectl and programs that ssh connects with print these
        AccessDenied,
        (
            r"not authorized to perform: sts:AssumeRole",
            "request permission to assume the role named in the message",
            _AFTER_LOGIN,
        ),
        (
            r"The config profile \([^)\n]{1,100}\) could not be found",
            "choose an existing profile; to list the profiles, run: aws configure list-profiles",
            _AFTER_LOGIN,
        ),
        (
            r"SSO (?:session|token)\b.{0,80}(?:expired|invalid|not exist)|Error loading SSO|aws sso login",
            "log in again: aws sso login",
            _AFTER_LOGIN,
        ),
        (r"gcloud auth login|Reauthentication (?:failed|required)", "log in again: gcloud auth login", _AFTER_LOGIN),
        (r"AADSTS\d+|\baz login\b", "log in again: az login", _AFTER_LOGIN),
        (r"\btsh login\b|^ERROR: Not logged in|Active profile expired", "log in again: tsh login", _AFTER_LOGIN),
        (
            r"(?:token|credentials?) (?:is|are|has|have)(?: been)? expired|ExpiredToken",
            "log in again: the credentials have expired",
            _AFTER_LOGIN,
        ),
        # ---- containers of Docker and Podman
        TargetNotFound,
        (
            r"no container with name or ID|No such (?:container|object): ",
            "check the container's name: docker ps -a or podman ps -a lists all containers",
        ),
        AccessDenied,
        (
            r"permission denied while trying to connect to the [Dd]ocker",
            "connect as root, or add the user to the docker group (usermod -aG docker USER) and log in again",
        ),
        TargetUnreachable,
        (r"Cannot connect to the Docker daemon", "start the Docker daemon: systemctl start docker"),
        (r"[Cc]ontainer \S{1,99} is paused", "unpause the container: docker unpause NAME"),
        (
            r"[Cc]ontainer \S{1,99} is (?:not running|restarting)",
            "find out why the container does not keep running: see docker logs NAME",
        ),
        (r"exec: \"sh\": executable file not found", "use an image that contains a shell: this container has no `sh`"),
        # ---- programs that are missing
        None,
        (r"\b\w*sh: (?:line )?(?:\d+: )?([\w.+-]{1,60}): (?:command )?not found\s*$", _INSTALL),
        (r"\benv: \W{0,3}([\w.+-]{1,60})\W{0,3}: No such file or directory", _INSTALL),
        # ---- certificates
        AccessDenied,
        (r"remote error: tls: (?:expired|bad) certificate|client certificate has expired", _CERTIFICATE),
        TargetUnreachable,
        (r"(?:x509|failed|problem): certificate has expired|expired or is not yet valid", _CERTIFICATE),
        (
            r"certificate signed by unknown authority|unable to get local issuer certificate"
            r"|self[- ]signed certificate",
            "download the kubeconfig again, or install the server's CA certificate",
        ),
        (
            r"certificate is valid for .*, not |doesn't contain any IP SANs|certificate relies on legacy Common Name",
            "use a host name for which the certificate is valid",
        ),
        # ---- services that are busy
        (
            r"\b503 Service Unavailable|\(ServiceUnavailable\)|currently unable to handle the request",
            "try again in a minute: the server, or a proxy in front of the server, is not ready",
        ),
        (
            r"TLS handshake timeout",
            "try again: the server is overloaded, or a proxy (HTTPS_PROXY) is delaying the connection",
        ),
        # ---- hosts
        None,
        (
            r"No space left on device|Disk quota exceeded",
            "free up disk space: the disk is full, or your disk quota is used up",
        ),
        (r": Read-only file system", "check dmesg on the target: the file system is read-only"),
        (r": Stale (?:NFS )?file handle", "mount the file system named in the message again: its server lost it"),
        (
            r"is not recognized as an internal or external command|The term 'sh' is not recognized",
            "connect to Linux instead, for example to WSL: the host runs Windows, and has no `sh`",
        ),
        (
            r"fork: (?:retry: )?Resource temporarily unavailable|\bCannot fork\b|fork: Cannot allocate memory",
            "stop some programs on the target: it has reached its process or memory limit",
            _AFTER_CUT,
        ),
        # ---- networks
        TargetUnreachable,
        (
            r"connect: operation not permitted",
            "check the firewall and the sandbox of this machine: one of them is blocking the connection",
        ),
        (
            r"no such host|could not resolve|name or service not known|temporary failure in name resolution"
            r"|server misbehaving",
            "check the spelling of the host name, and the DNS settings",
        ),
        (
            r"no route to host|network is unreachable",
            "check this machine's network connection, and the VPN if you use one",
        ),
        (
            r"connection refused|was refused - did you specify",
            "check the address and the port, and whether the server is running",
        ),
        (
            r"(?:connection|operation|request|i/o|read|connect|dial tcp \S{1,80}) time(?:d ?)?out"
            r"|connection to \S{1,100} (?:port \d+ )?timed out|deadline exceeded|Client\.Timeout"
            r"|host is (?:unreachable|down)|server \S{1,100} not responding",
            "check the network, the VPN and firewalls, and whether the server is running",
        ),
        (
            r"reset by peer|\bEOF\b|connection closed|closed idle connection|broken pipe|lost connection"
            r"|Connection reset by \S{1,60} port|Connection to \S{1,100} closed by remote host",
            "try again: the connection was lost. If this happens again, check the network and the server",
        ),
    ),
    "vastai": (
        CommandFailed,
        (
            r"no_balance|insufficient.?(?:credit|funds|balance)|lacks? credit|not enough (?:credit|funds)",
            "add credit at https://cloud.vast.ai/billing/",
        ),
        AccessDenied,
        (r"two.?factor authentication required", "log in with your second factor: vastai tfa login"),
        (
            r"No API key found|\bauth_error\b|\bpermission_denied\b"
            r"|\"status_code\": 40[13]|failed with error 40[13]\b|HTTPError: 40[13]\b|session (?:has )?expired",
            "check the API key (vastai set api-key, VASTAI_API_KEY) and its permissions, or run vastai tfa login",
        ),
        None,
        (
            r"no_such_ask|\boffer\b.{0,40} (?:is )?(?:gone|no longer available|not available)",
            "choose another offer: this one is no longer available",
        ),
        TargetNotFound,
        (r"no_such_instance", "check the instance ID: vastai show instances lists your instances"),
        TargetUnreachable,
        (
            r"\"status_code\": 429|failed with error 429\b|HTTPError: 429\b",
            "wait, then try again: vast.ai limits the request rate",
        ),
    ),
}


def _compiled(words: str) -> re.Pattern[str]:
    return regex(words, re.IGNORECASE | re.MULTILINE)


def advice_of(*rows: _Row) -> tuple[Advice, ...]:
    """Compile the rows of a tool or of a notification channel."""
    made, kind = list[Advice](), None
    for row in rows:
        if isinstance(row, tuple):
            made.append(Advice(_compiled(row[0]), kind, row[1], *map(_compiled, row[2:])))
        else:
            kind = row
    return tuple(made)


ADVICE = {tool: advice_of(*rows) for tool, rows in _ROWS.items()}


def find_advice(said: str, *tools: str | tuple[Advice, ...]) -> Advised | None:
    """Return the advice for a message from the rows of some tools, or from other rows; None if no row matches."""
    chosen = find_row(said, *tools)
    if chosen is None:
        return None
    row, found = chosen
    return Advised(row.kind, found.expand(row.hint), _line_of(found).strip())


def find_row(said: str, *tools: str | tuple[Advice, ...]) -> tuple[Advice, re.Match[str]] | None:
    """Return the row that decides, and its match in the message."""
    rows = (row for tool in tools for row in (ADVICE.get(tool, ()) if isinstance(tool, str) else tool))
    known = [(row, found) for row in rows if (found := _last_match(row.words, said))]
    if not known:
        return None
    last = _latest(known)
    line = _line_of(last[1])
    return _latest([each for each in known if each[0].then and each[0].then.search(line)] or [last])


def _last_match(words: re.Pattern[str], said: str) -> re.Match[str] | None:
    """Return the first match in the last line that contains a match."""
    last: re.Match[str] | None = None
    for found in words.finditer(said):
        if last is None or said.find("\n", last.start(), found.start()) >= 0:
            last = found
    return last


def _latest(known: list[tuple[Advice, re.Match[str]]]) -> tuple[Advice, re.Match[str]]:
    """Return the first of the matches in the last line."""
    return max(known, key=lambda each: _start_of(each[1]))


def _start_of(found: re.Match[str]) -> int:
    return found.string.rfind("\n", 0, found.start()) + 1


def _line_of(found: re.Match[str]) -> str:
    return found.string[_start_of(found) :].partition("\n")[0]
