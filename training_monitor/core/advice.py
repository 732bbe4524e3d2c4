"""What to try after an outside tool or service refused, by its own words. Pure.

The last line with known words decides, and in it the first row. A row with `then` is the cause of such a line and
precedes it. Each row has an answer in tests/recorded/advice, with its source. Words that no row has are shown as they
are, without advice: none is better than a wrong one.
"""

from __future__ import annotations

import re

from training_monitor.core.errors import (
    AccessDenied,
    CommandError,
    CommandFailed,
    LocalFailure,
    TargetEnded,
    TargetNotFound,
    TargetUnreachable,
)
from training_monitor.core.frozen import dataclass
from training_monitor.core.regex import regex

QUESTIONS, PROGRAMS = "questions", "programs"  # what waits for a person's answer; errors of any program


@dataclass(frozen=True, slots=True)
class Advice:
    """One row.

    Attributes:
        words: a pattern of what the tool prints.
        kind: the class of the error, if these words decide it.
        hint: what to try; it may name groups of the pattern.
        then: a pattern of later lines that these words explain: if one of those decides, this row does instead.
    """

    words: re.Pattern[str]
    kind: type[CommandError] | None
    hint: str
    then: re.Pattern[str] | None = None


@dataclass(frozen=True, slots=True)
class Advised:
    """The row that fits an answer: the class of the error, what to try, and the line where its words are."""

    kind: type[CommandError] | None
    hint: str
    line: str


_LOG_IN = "log in once in a terminal, as it says, then try again: it cannot be answered here"
_WAITS = "run it once in a terminal: it waits for an answer, and cannot be answered here"
_CERTIFICATE = "renew the certificate, and compare the clocks of this machine and the server"
_KEYS = "check the user and that your key is on the host: ssh-add -l"
_WEBHOOK = "make the webhook again"
_NOT_LET_IN = "log in once in a terminal, or ask the administrator of the host"
_CODE = r"\"code\":\s*"
_SCHEME = "compare the scheme and port of the server in the kubeconfig with its real ones"
_CONTEXTS = "kubectl config get-contexts lists the contexts"
_NOT_RUNNING = "look whether the pod is running: kubectl get pod"
_NO_SSH_KEY = r"Permission denied \((?:publickey|password|keyboard|gssapi|hostbased)"
_JUMP = r"Connection closed by UNKNOWN"
# Lines that only follow from what was printed before.
_AFTER_KEY = rf"{_NO_SSH_KEY}|{_JUMP}|Too many authentication failures"
_AFTER_LOGIN = (
    rf"executable \S+ failed with exit code|getting credentials|{_JUMP}|must be logged in"
    r"|asked for the client to provide credentials"
)
_AFTER_CUT = r"Connection (?:to \S+ )?closed by(?! UNKNOWN)|Connection reset by"

_Row = tuple[str, "type[CommandError] | None", str] | tuple[str, "type[CommandError] | None", str, str]
_ROWS: dict[str, tuple[_Row, ...]] = {
    QUESTIONS: (
        (
            r"To sign in, use a web browser|\bdevicelogin\b|login\.microsoftonline\.com/\S*device"
            r"|(?:visit|open|go to) the following (?:url|link|address|page)\b"
            r"|to login to Rancher Server visit|To authenticate, visit:"
            r"|browser window should have opened at the following"
            r"|open it by clicking on the link:",
            None,
            _LOG_IN,
        ),
        (r"Enter passphrase for", None, "load the key into the agent first: ssh-add FILE"),
        (
            r"Enter PIN for|Confirm user presence|Tap any security key",
            None,
            "use a key that needs no PIN or touch, or ssh-add it first",
        ),
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
            r"(?:Enter (?:an OTP|MFA|the verification) code\b[^\n]{0,200}:|Verification code:"
            r"|Passcode or option \([\d-]+\):"
            r"|One-time password \([^)\n]{1,40}\)[^\n]{0,100}:|Enter password for Teleport user [^\n]{1,100}:)\s*\Z",
            None,
            _LOG_IN,
        ),
        (
            r"(?:Username|Password) for 'https?:|(?:^|\s)(?:password|username|(?<!last )login):\s*\Z"
            r"|\[sudo\] password for [^\n]{1,100}:\s*\Z",
            None,
            "save the credentials where the program finds them: it cannot be answered here",
        ),
        (
            r"\[y/n\]|\(y/n\)|\(yes/no\)|enter your [\w -]{0,40}(?:code|key|password|token)"
            r"|Proceed \(\[y\]/n\)\?|(?:Enter your choice|Enter a value):\s*\Z",
            None,
            _WAITS,
        ),
    ),
    "kubectl": (
        # ---- the plugin that fetches the credentials
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
            _AFTER_LOGIN,
        ),
        (r"exec: executable ([\w./+-]{1,80}) not found", AccessDenied, r"install \1 and put it on PATH"),
        (
            r"no kind \"ExecCredential\"|invalid apiVersion \"client\.authentication\.k8s\.io",
            AccessDenied,
            "update the plugin and get the kubeconfig again: they use different versions of the same API",
        ),
        (
            r"The (?:gcp|azure) auth plugin has been removed|no Auth Provider found for name",
            AccessDenied,
            "get the kubeconfig again with a plugin for its cloud: this kubectl no longer has its way to log in",
        ),
        (
            r"executable ([\w./+-]{1,80}) failed with exit code",
            AccessDenied,
            r"log in again: \1, which fetches the credentials, failed",
        ),
        # ---- the container
        (
            r"chdir to cwd \(",
            TargetUnreachable,
            "the working folder of the container is missing: create or mount it, or change workingDir",
        ),
        (
            r"exec: \"[^\"\n]{1,200}\":.{0,200}(?:executable file not found|no such file or directory)",
            LocalFailure,
            "this container has no `sh`; name another one: k8s://namespace/pod/container",
        ),
        (
            r"container \S+ is not valid for pod|a container name must be specified for pod",
            LocalFailure,
            "name one of the pod's containers: k8s://namespace/pod/NAME",
        ),
        # ---- the node
        (
            r"error dialing backend: .{0,200}(?:x509:|tls:)",
            TargetUnreachable,
            "the API server does not accept the certificate of the node: the administrator has to renew it",
        ),
        (
            r"error dialing backend|dial tcp \S+:10250",
            TargetUnreachable,
            "the API server does not reach the node of the pod: kubectl get nodes",
        ),
        (
            r"unable to upgrade connection: (?:Forbidden|Unauthorized|Authorization error)"
            r"|resource=nodes, subresource=proxy",
            AccessDenied,
            "the node refuses the API server: the administrator of the cluster has to give its user nodes/proxy",
        ),
        # ---- the connection to the API server
        (
            r"tls: certificate required",
            AccessDenied,
            "get the kubeconfig again: the server wants a client certificate, and it has none",
        ),
        (
            r"server gave HTTP response to HTTPS client|first record does not look like a TLS handshake"
            r"|malformed HTTP response|Client sent an HTTP request to an HTTPS server",
            TargetUnreachable,
            _SCHEME,
        ),
        (
            r"Unable to connect to the server: Forbidden\s*$|parsing HTTP 407|socks connect\b|proxyconnect",
            TargetUnreachable,
            "check HTTPS_PROXY and NO_PROXY",
            r"was refused - did you specify",
        ),
        (
            r"oauth2: cannot fetch token|oauth2: \"?invalid_grant|No valid id-token, and cannot refresh",
            AccessDenied,
            "log in to the cluster again: the saved login cannot be renewed",
        ),
        # ---- the configuration
        (
            r"localhost:8080 was refused|missing or incomplete configuration|no configuration has been provided",
            TargetUnreachable,
            "kubectl has no kubeconfig here: get one for your cluster, or set KUBECONFIG",
        ),
        (
            r"(?:context|cluster|auth info) \S+ does not exist|no context exists|context was not found",
            AccessDenied,
            _CONTEXTS,
        ),
        (r"current-context is not set", LocalFailure, f"name a context or choose one: {_CONTEXTS}"),
        (
            r"error loading config file|unable to read (?:client-cert|client-key|certificate-authority)",
            LocalFailure,
            "mend the kubeconfig, or the file that it names",
        ),
        # ---- rights
        (r"exceeded quota", AccessDenied, "free what the quota names, or ask for a larger one: kubectl get quota"),
        (
            r"violates PodSecurity",
            AccessDenied,
            "change the securityContext of the pod as it says, or use a namespace that permits it",
        ),
        (
            r"admission webhook .* denied",
            AccessDenied,
            "a rule of the cluster refuses it: change what its message names",
        ),
        (
            r"\"system:anonymous\"|\(Unauthorized\)|server.{0,80}Unauthorized|must be logged in"
            r"|getting credentials|asked for the client to provide credentials",
            AccessDenied,
            "log in to the cluster again",
        ),
        (
            r"is forbidden: .{0,300}cannot (\w{1,20}) resource \"([a-z.]{1,60})/([a-z]{1,40})\"",
            AccessDenied,
            r"ask for the verb it names: kubectl auth can-i \1 \2 --subresource=\3",
        ),
        (
            r"is forbidden: .{0,300}cannot (\w{1,20}) resource \"([a-z.]{1,60})\"",
            AccessDenied,
            r"ask for the verb it names: kubectl auth can-i \1 \2",
        ),
        (
            r"\(Forbidden\)|is forbidden:",
            AccessDenied,
            "ask the administrator of the cluster for the right that it names",
        ),
        # ---- what is not there, or does not run
        (r"\(NotFound\): namespaces", TargetNotFound, "check the namespace: kubectl get namespaces"),
        (
            r"\(NotFound\): (?!pods )([a-z][a-z.]{1,60}) \"",
            TargetNotFound,
            r"check the name and the namespace: kubectl get \1 -A",
        ),
        (
            r"\(NotFound\)|(?<![\w.])pods? \S+ not found",
            TargetNotFound,
            "check the pod, container and namespace: kubectl get pods -A",
        ),
        (
            r"completed pod",
            TargetEnded,
            "the pod has ended: look for the one that replaced it: kubectl get pods",
        ),
        (
            r"waiting to start: (?:CrashLoopBackOff|.{0,60}can't be pulled)",
            TargetUnreachable,
            "look why it does not start: kubectl describe pod, and kubectl logs -p for its last attempt",
        ),
        (
            r"container not found|(?:pod|container)\b.{0,200}is not (?:created or )?running"
            r"|CONTAINER_EXITED|cannot exec in a stopped container"
            r"|unable to upgrade connection|does not have a host assigned|waiting to start|ContainerCreating",
            TargetUnreachable,
            _NOT_RUNNING,
        ),
        # ---- a server that is busy
        (r"\(TooManyRequests\)|received too many requests", TargetUnreachable, "wait: it asks for fewer requests"),
        (
            r"Error from server \(Timeout\)|etcdserver: (?:request timed out|leader changed)",
            TargetUnreachable,
            "repeat it: the API server answered, but its storage was too slow",
        ),
    ),
    "ssh": (
        (
            r"Offending \S+ key in ([^'\n]+):\d+\r?\n(?:.*\n){0,6}?Host key for ([^'\s]+) has changed",
            AccessDenied,
            r"if the host was really set up anew: ssh-keygen -R '\2' -f '\1'",
            rf"Host key for |Host key verification failed|{_JUMP}",
        ),
        (
            r"Host key verification failed|IDENTIFICATION HAS CHANGED|Host key for \S+ has changed",
            AccessDenied,
            "run plain ssh to the host: it names the line of your known_hosts files that is the reason",
            _JUMP,
        ),
        (
            r"\bexec: ([\w.+-]{1,60}): not found(?=[\s\S]{0,400}(?:UNKNOWN|kex_exchange))",
            LocalFailure,
            r"install \1 here: the ssh configuration connects with it (ProxyCommand)",
            rf"{_JUMP}|kex_exchange_identification",
        ),
        # ---- keys
        (
            r"UNPROTECTED PRIVATE KEY FILE",
            AccessDenied,
            "let only yourself read the key: chmod 600 FILE",
            _AFTER_KEY,
        ),
        (
            r"no mutual signature (?:supported|algorithm)",
            AccessDenied,
            "use an ed25519 key, or allow the old one for this host: PubkeyAcceptedAlgorithms +ssh-rsa",
            _AFTER_KEY,
        ),
        (
            r"agent refused operation",
            AccessDenied,
            "the agent refuses to use the key: load it again with ssh-add FILE",
            _AFTER_KEY,
        ),
        (
            r"signing failed for .{0,300}device not found",
            AccessDenied,
            "plug in the security key that the ssh key is on",
            _AFTER_KEY,
        ),
        (r"Certificate invalid: expired", AccessDenied, "renew the ssh certificate of your key", _AFTER_KEY),
        (
            r"^Load key \"[^\"\n]{1,300}\": (?:error in libcrypto|invalid format|Permission denied)",
            AccessDenied,
            "the key file that it names is damaged, of another format, or not readable",
            _AFTER_KEY,
        ),
        (
            r"no such identity: .{1,300}: No such file",
            AccessDenied,
            "name a key file that exists: IdentityFile in your ssh configuration",
            _AFTER_KEY,
        ),
        (r"No Kerberos credentials available", AccessDenied, "get a Kerberos ticket: kinit", _AFTER_KEY),
        (r"Permission denied \(gssapi[\w,-]*\)", AccessDenied, "get a Kerberos ticket: kinit"),
        (
            r"Too many authentication failures",
            AccessDenied,
            "offer one key only: IdentityFile and IdentitiesOnly=yes in your ssh configuration (ssh-add -l lists keys)",
            rf"{_JUMP}|{_AFTER_CUT}|^Disconnected from",
        ),
        (rf"{_NO_SSH_KEY}|No supported authentication methods available", AccessDenied, _KEYS, _JUMP),
        # ---- accounts
        (
            r"pam_slurm_adopt|no active jobs on this node",
            AccessDenied,
            "Slurm lets you in only where a job of yours runs: squeue --me lists its nodes",
            _AFTER_CUT,
        ),
        (
            r"account is currently not available|account has expired",
            AccessDenied,
            "use another user, or ask the administrator of the host: this account has no login",
            _AFTER_CUT,
        ),
        (
            r"password has expired|Password expired\. Change|required to change your password",
            AccessDenied,
            _NOT_LET_IN,
            _AFTER_CUT,
        ),
        (
            r"Too many logins for",
            TargetUnreachable,
            "log out elsewhere: the host limits the logins of this user",
            _AFTER_CUT,
        ),
        (
            r"pam_nologin|System is booting up|System is going down",
            TargetUnreachable,
            "repeat it in some minutes: the host starts, or is shut down",
            _AFTER_CUT,
        ),
        # ---- the configuration
        (
            r"Bad owner or permissions on|Bad configuration option|terminating, \d+ bad configuration"
            r"|^Bad port '|line \d+: (?:Bad number|no argument after keyword)|line \d+: Missing argument",
            LocalFailure,
            "mend the ssh configuration: it names what is wrong",
        ),
        # ---- the connection
        (
            r"no matching (?:host key type|key exchange method|cipher|mac) found",
            TargetUnreachable,
            "the host offers only what it names: allow that for this host in your ssh configuration",
            _JUMP,
        ),
        (
            r"banner line contains invalid characters",
            TargetUnreachable,
            "check the port: what answers there is no ssh server",
            rf"{_AFTER_CUT}|banner exchange",
        ),
        (
            r"Connection closed by UNKNOWN|stdio forwarding failed|administratively prohibited"
            r"|open failed: connect failed",
            TargetUnreachable,
            "look at the jump host: connect to it alone, and from it to the target",
        ),
        (
            r"Session open refused by peer|shell request failed on channel",
            TargetUnreachable,
            "close other sessions: the host permits no more in this connection (MaxSessions) or for this user",
        ),
        (
            r"Error response from daemon: .{0,200}is not running",
            TargetUnreachable,
            "start the container on the host: docker ps -a shows it",
        ),
        (
            r"kex_exchange_identification|ssh_exchange_identification",
            TargetUnreachable,
            "repeat it in a minute: the host closes connections before the login when there are many",
            _AFTER_CUT,
        ),
    ),
    PROGRAMS: (
        # ---- logins; plugins of kubectl and programs that ssh connects with print these
        (
            r"not authorized to perform: sts:AssumeRole",
            AccessDenied,
            "ask for the right to take the role that it names",
            _AFTER_LOGIN,
        ),
        (
            r"The config profile \([^)\n]{1,100}\) could not be found",
            AccessDenied,
            "name a profile that exists: aws configure list-profiles",
            _AFTER_LOGIN,
        ),
        (
            r"SSO (?:session|token)\b.{0,80}(?:expired|invalid|not exist)|Error loading SSO|aws sso login",
            AccessDenied,
            "log in again: aws sso login",
            _AFTER_LOGIN,
        ),
        (
            r"gcloud auth login|Reauthentication (?:failed|required)",
            AccessDenied,
            "log in again: gcloud auth login",
            _AFTER_LOGIN,
        ),
        (r"AADSTS\d+|\baz login\b", AccessDenied, "log in again: az login", _AFTER_LOGIN),
        (
            r"\btsh login\b|^ERROR: Not logged in|Active profile expired",
            AccessDenied,
            "log in again: tsh login",
            _AFTER_LOGIN,
        ),
        (
            r"(?:token|credentials?) (?:is|are|has|have)(?: been)? expired|ExpiredToken",
            AccessDenied,
            "log in again: the credentials have expired",
            _AFTER_LOGIN,
        ),
        # ---- programs that are missing
        (r"\b\w*sh: (?:line )?(?:\d+: )?([\w.+-]{1,60}): (?:command )?not found\s*$", None, r"install \1 there"),
        (r"\benv: \W{0,3}([\w.+-]{1,60})\W{0,3}: No such file or directory", None, r"install \1 there"),
        # ---- certificates
        (r"remote error: tls: (?:expired|bad) certificate|client certificate has expired", AccessDenied, _CERTIFICATE),
        (
            r"(?:x509|failed|problem): certificate has expired|expired or is not yet valid",
            TargetUnreachable,
            _CERTIFICATE,
        ),
        (
            r"certificate signed by unknown authority|unable to get local issuer certificate"
            r"|self[- ]signed certificate",
            TargetUnreachable,
            "get the kubeconfig or the certificates of this server's authority again",
        ),
        (
            r"certificate is valid for .*, not |doesn't contain any IP SANs|certificate relies on legacy Common Name",
            TargetUnreachable,
            "use a host name that the certificate is valid for",
        ),
        # ---- services that are busy
        (
            r"\b503 Service Unavailable|\(ServiceUnavailable\)|currently unable to handle the request",
            TargetUnreachable,
            "repeat it in a minute: the server, or a proxy before it, is not ready",
        ),
        (
            r"TLS handshake timeout",
            TargetUnreachable,
            "repeat it: the server is overloaded, or a proxy holds the connection (HTTPS_PROXY)",
        ),
        # ---- hosts
        (r"No space left on device|Disk quota exceeded", None, "free some space: the disk that it names is full"),
        (r": Read-only file system", None, "the disk that it names can only be read: look at dmesg on the target"),
        (
            r"fork: (?:retry: )?Resource temporarily unavailable|\bCannot fork\b|fork: Cannot allocate memory",
            None,
            "end programs on the target: it has no processes or memory left",
            _AFTER_CUT,
        ),
        # ---- networks
        (
            r"connect: operation not permitted",
            TargetUnreachable,
            "something on this machine forbids the connection: look at its firewall and sandbox",
        ),
        (
            r"no such host|could not resolve|name or service not known|temporary failure in name resolution"
            r"|server misbehaving",
            TargetUnreachable,
            "check the spelling of the host name, and the name resolution here",
        ),
        (
            r"no route to host|network is unreachable",
            TargetUnreachable,
            "check the network here, and the VPN if there is one",
        ),
        (
            r"connection refused|was refused - did you specify",
            TargetUnreachable,
            "check the address and port, and that the server is up",
        ),
        (
            r"(?:connection|operation|request|i/o|read|connect|dial tcp \S{1,80}) time(?:d ?)?out"
            r"|connection to \S{1,100} (?:port \d+ )?timed out|deadline exceeded|Client\.Timeout"
            r"|host is (?:unreachable|down)|server \S{1,100} not responding",
            TargetUnreachable,
            "check the network, the VPN and firewalls, and that the server is up",
        ),
        (
            r"reset by peer|\bEOF\b|connection closed|closed idle connection|broken pipe|lost connection"
            r"|Connection reset by \S{1,60} port|Connection to \S{1,100} closed by remote host",
            TargetUnreachable,
            "repeat it: the connection was cut; if that persists, check the network and that the server is up",
        ),
    ),
    "vastai": (
        (
            r"no_balance|insufficient.?(?:credit|funds|balance)|lacks? credit|not enough (?:credit|funds)",
            CommandFailed,
            "pay in at https://cloud.vast.ai/billing/",
        ),
        (
            r"two.?factor authentication required",
            AccessDenied,
            "log in with the second factor: vastai tfa login",
        ),
        (
            r"No API key found|\bauth_error\b|\bpermission_denied\b"
            r"|\"status_code\": 40[13]|failed with error 40[13]\b|HTTPError: 40[13]\b|session (?:has )?expired",
            AccessDenied,
            "check the key of vast.ai and what it permits: vastai set api-key, VASTAI_API_KEY, or vastai tfa login",
        ),
        (
            r"no_such_ask|\boffer\b.{0,40} (?:is )?(?:gone|no longer available|not available)",
            None,
            "choose another offer: this one is rented by now",
        ),
        (r"no_such_instance", TargetNotFound, "look which instances there are: vastai show instances"),
        (
            r"\"status_code\": 429|failed with error 429\b|HTTPError: 429\b",
            TargetUnreachable,
            "wait: vast.ai asks for fewer requests",
        ),
    ),
    "telegram": (
        (r"(?:upgraded|migrated) to a supergroup", None, "put the new id of the group into the settings: chat_id"),
        (r"bot was kicked", None, "add the bot to the group again"),
        (r"need administrator rights in the channel", None, "make the bot an administrator of the channel"),
        (r"not enough rights|have no rights to send|CHAT_WRITE_FORBIDDEN", None, "let the bot write in this chat"),
        (r"bot was blocked by the user", None, "unblock the bot, and press Start"),
        (r"can't initiate conversation", None, "open a chat with the bot and press Start"),
        (r"bots? can't send messages to bots", None, "give the id of a person or group, not of a bot"),
        (r"user is deactivated", None, "give another id: this account was deleted"),
        (r"group chat was deactivated|chat was deleted", None, "give another id: this group was closed"),
        (r"not a member of the (?:channel|supergroup|group)", None, "add the bot to the channel or group"),
        (r"chat_id is empty", None, "put the id of a chat into the settings: chat_id"),
        (r"chat not found|PEER_ID_INVALID", None, "check the chat id, and open a chat with the bot and press Start"),
        (r"TOPIC_CLOSED|TOPIC_DELETED|message thread not found", None, "open the topic again, or give another chat id"),
        (r"\"description\":\s*\"(?:Unauthorized|Not Found)\"", None, "check the token: @BotFather shows it"),
    ),
    "slack": (
        (r"is_archived", None, "unarchive the channel, or make a webhook for another one"),
        (
            r"\"error\":\s*\"(?:invalid_auth|account_inactive|token_revoked|token_expired|not_authed)\"",
            None,
            "check the token of the app: it is no longer valid",
        ),
        (r"missing_scope", None, "give the app the scope chat:write, and install it in the workspace again"),
        (
            r"\"error\":\s*\"channel_not_found\"",
            None,
            "check the id of the channel, and invite the app to it if it is private",
        ),
        (r"channel_not_found", None, f"{_WEBHOOK}: its channel is gone or private"),
        (r"not_in_channel", None, "invite the app to the channel"),
        (
            r"invalid_token",
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
            rf"{_CODE}220001\b|thread_name or thread_id",
            None,
            "it is a forum: add ?thread_id=ID of a post to the webhook's URL, or make a webhook of a text channel",
        ),
        (rf"{_CODE}40067\b", None, "the forum wants a tag for each post: use a text channel, or drop that rule"),
        (rf"{_CODE}50083\b", None, "unarchive the thread, or choose another channel"),
        (rf"{_CODE}(?:50024|50008)\b", None, "choose a text channel: this one takes no messages"),
        (rf"{_CODE}(?:10015|50027)\b|Unknown Webhook", None, f"{_WEBHOOK}: it was removed"),
        (rf"{_CODE}10003\b|Unknown Channel", None, "check the id: there is no such channel"),
        (rf"{_CODE}(?:10013|50033)\b|Unknown User", None, "check the user id: there is no such user"),
        (
            rf"{_CODE}(?:50007|50278)\b|Cannot send messages to this user",
            None,
            "share a server with the bot and allow direct messages from its members",
        ),
        (
            rf"{_CODE}(?:50001|50013)\b|Missing Access|Missing Permissions",
            None,
            "let the bot see the channel and write there",
        ),
        (r"401: Unauthorized", None, "check the bot's token, or make the webhook again"),
    ),
    "email": (
        (r"^421\b", None, "repeat it later: the server is busy, or limits the connections"),
        (
            r"Application-specific password required",
            None,
            "make an app password in the settings of this account, and give that one",
        ),
        (r"Must issue a STARTTLS command", None, "let the connection use TLS: smtp:// or smtps:// as the server"),
        (
            r"^535\b.{0,200}\bdisabled\b",
            None,
            "ask the administrator of this mail service: it permits no login with a password",
        ),
        (r"^53[45]\b", None, "check the user and the password"),
        (r"^530\b", None, "give the user and the password that the server wants"),
        (
            r"sending (?:limit|quota) exceeded|^550\W{1,2}5\.4\.5",
            None,
            "wait until tomorrow: this account has sent what it may in a day",
        ),
        (
            r"^550\W{1,2}5\.7\.2[6-9]|\b(?:SPF|DKIM|DMARC)\b",
            None,
            "send from an address whose domain permits this server (SPF, DKIM)",
        ),
        (
            r"relay(?:ing)? (?:access )?denied|unable to relay|relaying not (?:allowed|permitted)",
            None,
            "give a user and a password, or use the server of the sender's own domain: this one passes nothing on",
        ),
        (
            r"^(?:552|452)\b|mailbox (?:is )?full",
            None,
            "the mailbox of the recipient is full: empty it, or use another",
        ),
        (
            r"^55[013]\b|refused every recipient",
            None,
            "check the address of the recipient, and that of the sender",
        ),
    ),
    "ntfy": (
        (
            rf"{_CODE}42909\b",
            None,
            "check the token of the topic: too many logins failed; then wait",
        ),
        (rf"{_CODE}42908\b", None, "wait until tomorrow, or get a larger plan: this day's messages are used up"),
        (rf"{_CODE}401\d\d\b|\"error\":\s*\"unauthorized", None, "check the token of the topic"),
        (rf"{_CODE}403\d\d\b|\"error\":\s*\"forbidden", None, "check the token of the topic: it may not write there"),
        (rf"{_CODE}429\d\d\b|limit reached", None, "wait: it asks for fewer messages"),
    ),
}


def _compiled(words: str) -> re.Pattern[str]:
    return regex(words, re.IGNORECASE | re.MULTILINE)


ADVICE: dict[str, tuple[Advice, ...]] = {
    tool: tuple(Advice(_compiled(words), kind, hint, *map(_compiled, then)) for words, kind, hint, *then in rows)
    for tool, rows in _ROWS.items()
}


def find_advice(said: str, *tools: str) -> Advised | None:
    """Return what the tables have for an answer of a program or channel; None if its words are unknown."""
    chosen = find_row(said, *tools)
    if chosen is None:
        return None
    row, found = chosen
    return Advised(row.kind, found.expand(row.hint), _line_of(found).strip())


def find_row(said: str, *tools: str) -> tuple[Advice, re.Match[str]] | None:
    """Return the row that decides, and where its words are."""
    rows = (row for tool in tools for row in ADVICE.get(tool, ()))
    known = [(row, found) for row in rows if (found := _last_match(row.words, said))]
    if not known:
        return None
    last = _latest(known)
    line = _line_of(last[1])
    return _latest([each for each in known if each[0].then and each[0].then.search(line)] or [last])


def _last_match(words: re.Pattern[str], said: str) -> re.Match[str] | None:
    """Return the first match in the last line that has one."""
    last: re.Match[str] | None = None
    for found in words.finditer(said):
        if last is None or said.find("\n", last.start(), found.start()) >= 0:
            last = found
    return last


def _latest(known: list[tuple[Advice, re.Match[str]]]) -> tuple[Advice, re.Match[str]]:
    """Return the first of those in the last line."""
    return max(known, key=lambda each: _start_of(each[1]))


def _start_of(found: re.Match[str]) -> int:
    return found.string.rfind("\n", 0, found.start()) + 1


def _line_of(found: re.Match[str]) -> str:
    return found.string[_start_of(found) :].partition("\n")[0]
