"""One case or more for each row of the tables of secrets: how it looks, and what looks alike and stays.

VALUE stands for a secret made anew. No secret here was ever in use.
"""

from __future__ import annotations

import random

_CHANCE = random.Random(42)
_ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
HEX, UPPER = "0123456789abcdef", "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
SHA, MD5 = "8f14e45fceea167a5a36dedd4bea2543d3b0e5f1", "d41d8cd98f00b204e9800998ecf8427e"
UUID = "123e4567-e89b-12d3-a456-426614174000"


def letters(count: int, alphabet: str = _ALPHABET) -> str:
    """Return so many random letters, of which one at least is a digit where the alphabet has digits."""
    text = "".join(_CHANCE.choice(alphabet) for _ in range(count))
    return text if any(map(str.isdigit, text)) or "2" not in alphabet else f"{text[:-1]}2"


# By the example of a context: texts with a secret in the place of VALUE, and texts that stay as they are.
CONTEXT_CASES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    'NAME=VALUE, NAME: VALUE, NAME => VALUE, "NAME": "VALUE"': (
        (
            "WANDB_API_KEY=VALUE",
            "HF_TOKEN_2=VALUE",
            "aws_secret_access_key = VALUE",
            '{"client_secret": "VALUE"}',
            "password => VALUE",
            "'password' => 'VALUE'",
            "password: VALUE",
            "passwd := VALUE",
            "PGPASSWORD=VALUE psql",
            "MYSQL_PWD=VALUE",
            "export DB_PASS='VALUE'",
            "api-key: VALUE",
            "X-Api-Key: VALUE",
            "X-Vault-Token: VALUE",
            "PRIVATE-TOKEN: VALUE",
            "Ocp-Apim-Subscription-Key: VALUE",
            "os.environ['HF_TOKEN'] = 'VALUE'",
            '$env:HF_TOKEN = "VALUE"',
            "//registry.npmjs.org/:_authToken=VALUE",
            "client-key-data: VALUE",
            "https://host/x?api_key=VALUE&page=2",
            "https://host/x#access_token=VALUE",
            "wandbApiKey: VALUE",
            "REDISCLI_AUTH=VALUE",
            "credentials: VALUE",
            "openai.api_key = 'VALUE'",
            "token\\u003dVALUE",
            "  clientSecret: VALUE",
            "Server=db;User=me;Password=VALUE;Timeout=3",
            "passphrase=VALUE",
            "SSHPASS=VALUE",
            "HF_TOKEN_WRITE=VALUE",
            "  wandb_api_key ............ VALUE",
            "{b'password': b'VALUE'}",
            "DB_PASSWORD=VALUE&tail",
            '{"password": "pa\\"VALUE"}',
            '{"password": "VALUE\\u0026tail"}',
            "{'password': 'it\\'s-VALUE', 'port': 5432}",
            "password: 'x''VALUE'",
        ),
        (
            "tokens/s: 4512.5 token: 151643 pad_token_id=151643 n_tokens: 1.2e9",
            "password: too short",
            "token=None api_key: null secret: false",
            "api_key=$OPENAI_API_KEY token: ${{ secrets.HF_TOKEN }}",
            "eos_token: '<|im_end|>' pad_token=endoftext bos_token: <s>",
            "token: [PAD] key: /data/x pwd=/work/run",
            "password: required",
            "tokenizer: bert-base-uncased secretary=Jones",
            "password=***",
            "forward_pass=0.123 num_passes: 3 bypass=1 PWD=/work monkey=bananas",
            f"commit: {SHA} md5={MD5} id={UUID}",
            "token: expired",
            "cache_key=loss/epoch public_key: ssh-ed25519",
            "use_auth_token=False) (`token=True`) {'token': None} {'token': 2198}] from_pretrained('gpt2', token=None)",
            'api_key=os.environ["OPENAI_API_KEY"], api_key=args.api_key) token=token, password=getpass.getpass()',
            "next_token = torch.argmax(logits) token = self.tokenizer.decode(ids) password: Optional[str] = None",
            "token: your_token_here api_key: xxxx token=hf_...",
        ),
    ),
    "OPENAI_KEY=VALUE, GITHUB_PAT=VALUE": (
        ("OPENAI_KEY=VALUE", "export GITHUB_PAT='VALUE'", "COHERE_KEY=VALUE TOGETHER_KEY=1"),
        ("SORT_KEY=5 KEY=1e-4 PRIMARY_KEY=/data", "sort_key=loss_v2"),
    ),
    "pass=VALUE, pw: VALUE": (
        ("user=me pass=VALUE", "pass: VALUE", "pw='VALUE'", '"pass": "VALUE"'),
        ("pass: 3 of 5", "pass=True", "bypass=x1y2z3", "pass: backward_pass.py", "forward pass: 12.3ms"),
    ),
    "Password for USER: VALUE": (
        ("Password for 'https://me@github.com': VALUE", "password for me: VALUE"),
        ("password for me: required", "password for user me is needed"),
    ),
    '{"username": "USER", "key": "VALUE"}': (
        ('{"username": "me", "key": "VALUE"}', '{"username":"me","key":"VALUE"}'),
        ('{"username": "me", "key": "member"}', '{"name": "me", "key": "ssh://gpu1#process:train-2"}'),
    ),
    "echo VALUE | docker login --password-stdin": (
        ("echo VALUE | docker login -u me --password-stdin", "echo -n 'VALUE' | helm registry login --password-stdin"),
        ("echo $TOKEN | docker login --password-stdin", "cat token.txt | docker login --password-stdin"),
    ),
    "echo VALUE | wandb login, wandb login <<< VALUE": (
        ("echo VALUE | wandb login", "wandb login <<< VALUE"),
        ("echo done | tee wandb.log", "echo $KEY | wandb login"),
    ),
    "auth=('USER', 'VALUE'), HTTPBasicAuth('USER', 'VALUE')": (
        ("requests.get(u, auth=('me', 'VALUE'))", 'HTTPBasicAuth("me", "VALUE")'),
        ("auth=(user, password)", "auth=None, timeout=3"),
    ),
    "IDENTIFIED BY 'VALUE'": (("CREATE USER me IDENTIFIED BY 'VALUE'",), ("identified by its name",)),
    "mc alias set NAME URL USER VALUE": (
        ("mc alias set mine http://h:9000 minioadmin VALUE",),
        ("mc alias list mine", "alias set by the user"),
    ),
    'login("VALUE")': (
        ("huggingface_hub.login('VALUE')", 'login("VALUE", add_to_git_credential=True)'),
        ("login('me')", "login(user)"),
    ),
    "TOKEN_GITHUB=VALUE": (("TOKEN_GITHUB=VALUE", "export PASSWORD_DB='VALUE'"), ("TOKEN_COUNT=12 TOKEN_TYPE=bearer",)),
    "('NAME', 'VALUE')": (
        ("headers=[(b'X-Api-Key', b'VALUE')]", "os.getenv('API_KEY', 'VALUE')"),
        ("['token', 'embedding', 'loss_2']", "names=['password', 'required']"),
    ),
    "--NAME VALUE": (
        (
            "huggingface-cli login --token VALUE",
            "train.py --hub-token VALUE --steps 5",
            "['--api-key', 'VALUE']",
            "runpodctl config --apiKey VALUE",
            "mysql --password VALUE",
            "modal token set --token-secret VALUE",
            "x --pass VALUE",
            "x --password 'VALUE two'",
        ),
        (
            "--token --epochs 3",
            "--password PASSWORD   password of the user",
            "--eos-token </s>",
            "--max-tokens 4096 --tokenizer bert-base-cased",
            "train.py --token $HF_TOKEN",
            "token budget is used up",
        ),
    ),
    "setenv NAME VALUE, ENV NAME VALUE, aws configure set NAME VALUE": (
        (
            "setenv HF_TOKEN VALUE",
            "ENV WANDB_API_KEY VALUE",
            "set -x HF_TOKEN VALUE",
            "aws configure set aws_secret_access_key VALUE",
            "dvc remote modify mine password VALUE",
        ),
        ("set seed 42", "ENV PATH /opt/conda/bin2", "set token limit", "env var HF_TOKEN missing"),
    ),
    'name: NAME, value: VALUE; {"name": "NAME", "value": "VALUE"}': (
        ("- name: HF_TOKEN\n  value: VALUE", '{"name": "api_key", "value": "VALUE"}', 'key="Password" value="VALUE"'),
        ("- name: EPOCHS\n  value: '300000000'", '{"name": "loss", "value": "0.123456"}', "name: token, value: 12345"),
    ),
    "<NAME>VALUE</NAME>": (
        ("<password>VALUE</password>", "<apiKey>VALUE</apiKey>"),
        ("<token>12345</token>", "<name>llama-3.1-8b</name>", "<think>so it is</think>"),
    ),
    'NAMES: ["VALUE", "VALUE"]': (
        ('"passwords": ["VALUE", "b"]', "api_keys=['VALUE']", 'secret = {"x": "VALUE"}'),
        ("tokens: ['hello', 'world']", "special_tokens=['<s>', '</s>']", "keys: [1, 2, 3]"),
    ),
    "NAME is VALUE, with password VALUE": (
        (
            "API key is VALUE",
            "your api key was: VALUE",
            "the password is 'VALUE'",
            "login me with password VALUE ok",
            "vastai set api-key VALUE",
            "api_key VALUE",
            "The access key set to `VALUE`",
        ),
        (
            "key is missing",
            "API key is invalid",
            "password authentication failed for user me",
            "password sha256 hash",
            "api key is read-only",
            "password 3 times",
            "access key in settings.json",
            "password file passwd.txt",
        ),
    ),
    "token VALUE": (
        ("the token is VALUE", "got token VALUE from the service", "client secret VALUE"),
        ("token 123", "token 151643 of 819200", "token is expired", "token embeddings-v2", f"secret of {SHA}"),
    ),
    "login USER password VALUE": (
        (
            "machine api.wandb.ai login user password VALUE",
            "machine x\n  login me\n  password VALUE\n",
            "login me account mine password 'VALUE'",
        ),
        ("login failed: password required", "login of user: password expired"),
    ),
    "Authorization: Bearer VALUE": (
        (
            "Authorization: Bearer VALUE",
            "Authorization: Basic VALUE",
            "-H 'Authorization: token VALUE'",
            "Authorization: VALUE",
            '{"authorization": "Bearer VALUE"}',
            'Proxy-Authorization: Digest username="me", response="VALUE"',
        ),
        ("authorization is required", "Authorization: ***"),
    ),
    "Bearer VALUE": (("401 for Bearer VALUE",), ("bearer authentication failed", "the bearer of news")),
    "Cookie: VALUE": (
        ("Set-Cookie: id=VALUE; Path=/", "{'Cookie': 'sid=VALUE'}"),
        ("cookies are enabled", "cookie: ***"),
    ),
    '"auth": "VALUE"': (('{"ghcr.io": {"auth": "VALUE="}}',), ('"auth": "enabled"', '"auth": "oauth2"')),
    "https://USER:VALUE@host, https://VALUE@host": (
        (
            "https://me:VALUE@host/git",
            "postgresql://me:VALUE@db:5432/x",
            "https://VALUE@github.com/me/x",
            "redis://:VALUE@h",
        ),
        (
            "ssh://root@host:22",
            "http://127.0.0.1:8080/a?mail=b@c",
            "https://huggingface.co/meta/llama",
            "user@host:/data",
        ),
    ),
    "https%3A%2F%2FUSER%3AVALUE%40host": (
        ("proxy=https%3A%2F%2Fme%3AVALUE%40host",),
        ("next=https%3A%2F%2Fhost%3A8080%2Fx",),
    ),
    "X-Amz-Signature=VALUE, X-Amz-Credential=VALUE": (
        ("PUT https://b/k?X-Amz-Signature=VALUE&x=1", "?X-Amz-Credential=VALUE%2F2026", "X-Amz-Security-Token: VALUE"),
        ("X-Amz-Date=20261126T000000Z&X-Amz-Expires=900",),
    ),
    "X-Goog-Signature=VALUE": (("https://storage/b?X-Goog-Signature=VALUE",), ("X-Goog-Expires=900",)),
    "?sig=VALUE": (
        ("https://a.blob.core.windows.net/c?sv=2024&sig=VALUE", "https://b/k?Signature=VALUE", "?x=1&amp;sig=VALUE"),
        ("sigma=0.5 ?sign=1", "signal=9"),
    ),
    "?key=VALUE": (("GET https://maps.example.com/v1?key=VALUE",), ("https://host/?key=loss",)),
    "?auth=VALUE, ?pass=VALUE": (("https://host/x?user=me&pass=VALUE",), ("https://host/?pass=2&auth=none",)),
    "AWSAccessKeyId=VALUE": (("https://b/k?AWSAccessKeyId=VALUE&Expires=1",), ("Expires=1767225600",)),
    "hooks.slack.com/services/VALUE": (
        (
            "POST https://hooks.slack.com/services/T00/B00/VALUE 404",
            "https%3A%2F%2Fhooks.slack.com%2Fservices%2FT%2FVALUE",
        ),
        ("see https://slack.com/services/help",),
    ),
    "discord.com/api/webhooks/VALUE": (
        ("https://discord.com/api/webhooks/223704706495545344/VALUE",),
        ("https://docs.example.org/webhooks/overview",),
    ),
    "webhook.office.com/VALUE": (("https://x.webhook.office.com/webhookb2/VALUE/I/1",), ("https://office.com/home",)),
    "curl -u USER:VALUE": (
        (
            "curl -u me:VALUE https://host",
            "curl -sSu me:VALUE x",
            "curl --user 'me:VALUE' x",
            "['curl', '-u', 'me:VALUE']",
            "http -a me:VALUE host",
            "curl -x p --proxy-user me:VALUE",
            "curl --user=me:VALUE",
        ),
        ("docker run -u 1000:1000 image", "ps -u root", "curl -u $USER:$PASS x", "chown -u me:users", "curl -o a:b"),
    ),
    "sshpass -p VALUE": (
        (
            "sshpass -p VALUE ssh me@host",
            "sshpass -pVALUE ssh",
            "sshpass -p'VALUE' ssh",
            "['sshpass', '-p', 'VALUE', 'ssh']",
            "sshpass -v -p 'VALUE' x",
        ),
        ("ssh -p 2222 root@host", "sshpass -e ssh -p 22 x", "sshpass -f pass.txt ssh -p 22 x"),
    ),
    "mysql -pVALUE": (
        ("mysql -u me -p'VALUE!' db", "mysql -u me -pVALUE db", "mysqldump -pVALUE db", "mariadb -h x -pVALUE"),
        ("docker run mysql -p3306:3306", "mysql -P3306 -u root", "mysql -p3306", "mkdir -path mysql"),
    ),
    "docker login -p VALUE, mongosh -p VALUE": (
        ("docker login -u me -p VALUE ghcr.io", "az login -u me -p VALUE", "mongosh -u me -p VALUE"),
        ("docker run -p 8080:80 x", "docker login --password-stdin"),
    ),
    "redis-cli -a VALUE": (("redis-cli -h x -a VALUE ping",), ("redis-cli -h x ping", "ls -a folder")),
    "ldapsearch -w VALUE": (("ldapsearch -D cn=me -w VALUE",), ("ldapsearch -x", "grep -w word")),
    "unzip -P VALUE": (("unzip -P VALUE a.zip",), ("unzip a.zip -d out", "xargs -P 8 gzip")),
    "7z -pVALUE": (("7z x -pVALUE a.7z",), ("7z x a.7z",)),
    "smbclient -U USER%VALUE": (("smbclient //h/s -U me%VALUE",), ("smbclient //h/s -U me",)),
    "openssl -passin pass:VALUE": (("openssl rsa -passin pass:VALUE -in k",), ("openssl x509 -in k", "pass: 3")),
    "wandb login VALUE": (
        (
            "wandb login VALUE",
            "wandb login --relogin VALUE",
            "wandb\nlogin\nVALUE",
            "['wandb', 'login', 'VALUE']",
            "ngrok authtoken VALUE",
        ),
        ("wandb login --relogin", "run wandb login first", "wandb login successful"),
    ),
    'wandb.login(key="VALUE")': (("wandb.login(key='VALUE')", 'login(token="VALUE")'), ("login(key=KEY)", "login()")),
}

_h, _u = (lambda count: letters(count, HEX)), (lambda count: letters(count, UPPER))
_BODY = "\n".join(letters(64) for _ in range(6))

# By the form of a token: secrets of this form, and texts that stay as they are.
TOKEN_CASES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "age": (
        (f"AGE-SECRET-KEY-1{_u(58)}",),
        ("age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kudjzq", "AGE-SECRET-KEY-1"),
    ),
    "AI21, Langfuse, OpenAI, Anthropic, OpenRouter, DeepSeek": (
        (f"sk-proj-{letters(40)}", f"sk-ant-api03-{letters(93)}AA", f"sk-or-v1-{_h(64)}", f"sk-lf-{UUID}"),
        ("task-runner-0123456789", "disk-usage-report", "sk-1", "sk-learn-contrib", "sk-llm-finetune-2024-baseline"),
    ),
    "Airtable": ((f"pat{letters(14)}.{_h(64)}",), ("path/to/model.safetensors", f"patch.{SHA}")),
    "Alibaba": ((f"LTAI{letters(20)}",), ("LTAI",)),
    "Anyscale": ((f"esecret_{letters(26)}", f"aph0_{letters(40)}"), ("esecret_x",)),
    "Artifactory": ((f"AKCp{letters(69)}", f"cmVmdGtu{letters(56)}"), ("AKCp",)),
    "Atlassian": ((f"ATATT3{letters(186)}", f"ATBB{letters(32)}"), ("ATBB", "BATTLE")),
    "AWS": ((f"AKIA{_u(16)}", f"ASIA{_u(16)}"), ("AKIA", "ASIANPAINTS")),
    "AWS Bedrock": ((f"ABSK{letters(120)}", f"bedrock-api-key-{letters(100)}"), ("ABSK",)),
    "Azure applications": ((f"{letters(3)}8Q~{letters(34)}",), ("Q~",)),
    "Azure resources": ((f"{letters(52)}JQQJ99{letters(26)}",), ("JQQJ9",)),
    "Brevo": ((f"xkeysib-{_h(64)}-{letters(16)}",), ("xkeysib-1",)),
    "Cerebras": ((f"csk-{letters(48)}",), ("csk-0", "task-0123456789012345678901234567890123456789")),
    "Databricks": ((f"dapi{_h(32)}", f"dapi{_h(32)}-2"), ("dapi", "dapiVersion: apps/v1")),
    "DigitalOcean": ((f"dop_v1_{_h(64)}", f"doo_v1_{_h(64)}"), ("dop_v1_",)),
    "Discord bots": (
        (f"MTk4NjIyNDgzNDcxOTI1{letters(4)}.{letters(6)}.{letters(27)}", f"N{letters(23)}.{letters(6)}.{letters(38)}"),
        (
            "model.layers.mlp.down_proj_weights_of_the_decoder",
            f"checkpoint.000100.{MD5}",
            "MyVeryLongModuleNameHere.v1.safetensors",
            "Nemotron-4-340B-Instruct.tar.gz",
        ),
    ),
    "Docker Hub": ((f"dckr_pat_{letters(27)}", f"dckr_oat_{letters(32)}"), ("dckr_pat_",)),
    "Doppler": ((f"dp.st.{letters(43)}", f"dp.pt.{letters(43)}"), ("dp.size=8", "ddp.st.x")),
    "Dynatrace": ((f"dt0c01.{_u(24)}.{_u(64)}",), ("dt0c01.",)),
    "ElevenLabs": ((f"sk_{_h(48)}",), ("sk_learn", "task_0123456789")),
    "Figma": ((f"figd_{letters(40)}",), ("figd_1",)),
    "Fireworks": ((f"fw_{letters(24)}",), ("fw_version", "fw_attention_backward_kernel_time")),
    "Fly.io": ((f"fo1_{letters(43)}", f"fm2_{letters(120)}"), ("fm2_x",)),
    "GitHub": ((f"ghp_{letters(36)}", f"github_pat_{letters(82)}", f"ghs_{letters(36)}"), ("ghp_", "github_path")),
    "GitLab": ((f"glpat-{letters(20)}", f"glrt-{letters(20)}", f"GR1348941{letters(20)}"), ("glpat-", "glue-2")),
    "Google": ((f"AIza{letters(35)}",), ("AIza",)),
    "Google OAuth": (
        (f"GOCSPX-{letters(28)}", f"ya29.{letters(60)}", f"1//0{letters(60)}"),
        ("GOCSPX-", "1//0 loss", "11//0"),
    ),
    "Grafana": (
        (f"glsa_{letters(32)}_{_h(8)}", f"glc_{letters(60)}==", f"eyJrIjoi{letters(70)}"),
        ("glsa_", "glc_loss"),
    ),
    "Groq": ((f"gsk_{letters(52)}",), ("gsk_x", "msgsk_0123456789012345678")),
    "HashiCorp": ((f"hvs.{letters(90)}", f"hvb.{letters(90)}"), ("hvs.x",)),
    "HashiCorp Terraform": ((f"{letters(14)}.atlasv1.{letters(60)}",), (".atlasv1.",)),
    "Heroku": ((f"HRKU-AA{letters(58)}",), ("HRKU-x",)),
    "Hugging Face": (
        (f"hf_{letters(34)}",),
        ("HF_HUB_ENABLE_HF_TRANSFER=1", "hf_transfer", "hf_hub_download_and_cache", "hf:me/model"),
    ),
    "Hugging Face organizations": ((f"api_org_{letters(34)}",), ("api_org_x",)),
    "Jina": ((f"jina_{_h(32)}{letters(28)}",), ("jina_v3",)),
    "JWT": ((f"eyJ{letters(20)}.eyJ{letters(40)}.{letters(43)}",), ("eyJ", "heyJude.mp3")),
    "Kaggle": ((f"KGAT_{_h(32)}",), ("KGAT_x",)),
    "Lambda": ((f"secret_mine_{_h(32)}.{letters(32)}",), ("secret_santa", "secret_key_name.yaml")),
    "LangSmith": ((f"lsv2_pt_{_h(32)}_{_h(10)}", f"lsv2_sk_{_h(32)}_{_h(10)}"), ("lsv2_pt_",)),
    "Linear": ((f"lin_api_{letters(40)}",), ("lin_api_x",)),
    "LlamaCloud": ((f"llx-{letters(48)}",), ("llx-1",)),
    "Mailchimp": ((f"{_h(32)}-us12",), (f"{MD5}-usage", f"{SHA}-us1", "gpu-us1")),
    "Mailgun": ((f"key-{_h(32)}",), (f"key-{SHA}", f"cache-key-{MD5}")),
    "Modal": ((f"ak-{letters(22)}", f"as-{letters(22)}"), ("as-is", f"has-{letters(22)}", f"as-{SHA}")),
    "Neptune": (
        (f"eyJhcGlfYWRkcmVzcyI6{letters(120)}==",),
        ("eyJhcGlfYWRkcmVzcyI6",),
    ),
    "New Relic": ((f"NRAK-{_u(27)}",), ("NRAK-",)),
    "Notion": ((f"ntn_{letters(46)}",), ("ntn_x",)),
    "npm": ((f"npm_{letters(36)}",), ("npm_config_registry_of_the_user=5",)),
    "NVIDIA": ((f"nvapi-{letters(64)}",), ("nvapi-",)),
    "OpenShift": ((f"sha256~{letters(43)}",), (f"sha256:{SHA}",)),
    "Perplexity": ((f"pplx-{letters(48)}",), ("pplx-7b",)),
    "Pinecone": ((f"pcsk_{letters(6)}_{letters(63)}",), ("pcsk_x",)),
    "PlanetScale": ((f"pscale_tkn_{letters(43)}",), ("pscale_x",)),
    "Postman": ((f"PMAK-{_h(24)}-{_h(34)}",), ("PMAK-x",)),
    "Prefect": ((f"pnu_{letters(36)}",), ("pnu_x",)),
    "private keys": (
        (f"-----BEGIN OPENSSH PRIVATE KEY-----\n{_BODY}\n-----END OPENSSH PRIVATE KEY-----",),
        ("-----BEGIN CERTIFICATE-----",),
    ),
    "Pulumi": ((f"pul-{_h(40)}",), (f"pull-{SHA}",)),
    "PyPI": ((f"pypi-AgEIcHlwaS5vcmc{letters(60)}",), ("pypi-mirror-of-the-company",)),
    "Replicate": ((f"r8_{letters(37)}",), ("r8_x", "lr8_schedule")),
    "RubyGems": ((f"rubygems_{_h(48)}",), ("rubygems_x",)),
    "RunPod": ((f"rpa_{_u(44)}",), ("rpa_x", "rpa_attention_head_of_the_layer")),
    "SendGrid": ((f"SG.{letters(22)}.{letters(43)}",), ("SG.x",)),
    "Sentry": ((f"sntryu_{_h(64)}", f"sntrys_eyJ{letters(60)}_{letters(43)}"), ("sntrys_",)),
    "Shopify": ((f"shpat_{_h(32)}",), ("shpat_x",)),
    "Slack": ((f"xoxb-{letters(12, '0123456789')}-{letters(24)}", f"xoxe.xoxp-1-{letters(60)}"), ("xoxb-", "xoxo-")),
    "Slack applications": ((f"xapp-1-{letters(30)}",), ("xapp-1",)),
    "Square": ((f"sq0atp-{letters(22)}",), ("sq0atp-",)),
    "Stripe": ((f"sk_live_{letters(24)}", f"rk_test_{letters(24)}", f"whsec_{letters(32)}"), ("sk_live_",)),
    "Supabase": ((f"sbp_{_h(40)}", f"sb_secret_{letters(31)}"), ("sbp_x",)),
    "Tailscale": ((f"tskey-auth-{letters(16)}-{letters(32)}",), ("tskey-",)),
    "Tavily": ((f"tvly-{letters(32)}",), ("tvly-dev",)),
    "Telegram bots": ((f"123456789:AA{letters(33)}",), ("12:34:56:AAAA", "123456:AA")),
    "Together": ((f"tgp_v1_{letters(43)}",), ("tgp_v1_",)),
    "Twilio": ((f"SK{_h(32)}",), ("SKIP", f"SK{SHA}", f"TASK{MD5}")),
    "Vercel": ((f"vcp_{letters(24)}",), ("vcp_x",)),
    "Voyage": ((f"pa-{letters(43)}",), ("pa-1", f"spa-{letters(43)}")),
    "wandb": ((f"wandb_v1_{letters(27)}_{letters(49)}",), ("wandb_v1_", "wandb_version=0.22.3")),
    "xAI": ((f"xai-{letters(80)}",), ("xai-1",)),
}

# What training logs print, and looks like a secret to a rule that is too wide.
STAYS = (
    "step 100/5000 loss 2.31 lr 1.0e-04 tokens/s 4512 grad_norm 0.98 token 123",
    f"commit {SHA} md5 {MD5} run {UUID} sha256:{SHA}{MD5[:24]}",
    "saved /workspace/output/checkpoint-500/model-00001-of-00004.safetensors to s3://bucket/llama-3.1-8b-instruct",
    "ssh -p 22 root@host; docker run -u root -p 8080:8080 x; ps -u me; mysql -p3306; ls -a; grep -w step",
    "https://wandb.ai/me/llama/runs/x1y2z3w4 https://huggingface.co/meta-llama/Llama-3.1-8B?x=1",
    "raysubmit_x8Kq22bdMN4 process:llama-7b-attempt-3 vast://30007012 k8s://ml/trainer-0",
    "the key is missing, the token expired, and the password is wrong: password: too short",
    "train-gpt2-124M_lr6e-4_bs512 epoch_3_step_4000.pt events.out.tfevents.1764115200.host.123.0",
)
