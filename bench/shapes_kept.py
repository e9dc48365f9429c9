"""Texts that hold no secret and must come back untouched, whatever they look like."""

from __future__ import annotations

import base64
import random
import uuid


def kept(rng: random.Random) -> list[str]:
    """The fixed texts, and some with drawn ids, hashes and pictures."""
    return [*(line for line in _LINES.splitlines() if line), *_BLOCKS, *_drawn(rng)]


# One line is one text.
_LINES = r"""
--- PASS: TestParse (0.00s)
--- PASS: TestSHA256Sum (0.00s)
--- PASS: TestX25519Exchange (0.12s)
    --- PASS: TestCLIOverrides/NoVersionCheck_override_(--no-version-check) (0.00s)
    --- PASS: TestGetProviderCmd/#00 (0.00s)
=== RUN   TestTokenRefresh/expired_token_returns_401
ok  	github.com/acme/shop/internal/auth	0.412s
PASS: tests/test_login.py::test_password_reset[admin-True]
grep -E '^(--- PASS: TestFeatures|    --- )' | head
I'll skip core changes and do a docs-only pass: locate the triggers first.
One more pass: I’ll check the 2nd table, then the 3rd.
"pwd": "{{ .PWD }}"
"pwd": "osc99",
flags.PWD = pwd
flags.PWD = *envFlags.PWD
--pwd "D:/projects/oh-my-posh" --shell pwsh
"pwd": "/home/me/work/shop"
PWD=/home/me/work/shop OLDPWD=/tmp
cd "$(pwd)" && echo "pwd: $PWD"
password: str
password: Optional[str] = None
password = getpass.getpass("Password: ")
password = newPassword
password: hashedPassword,
self.password = password
user.password = hash_password(form.password)
this.token = token;
token = get_token()
const token = await getToken({ req, secret })
let apiKey = config.apiKey ?? process.env.API_KEY;
api_key=os.environ["OPENAI_API_KEY"]
api_key = settings.OPENAI_API_KEY
secret = settings.SECRET_KEY; client(password=password1)
client = Client(password=dbPassword2, token=accessToken)
firstPassValid = !repairAttempted;
if key == other_key: pass
auth: AuthConfig
auth = HTTPBasicAuth(user, password)
credentials: DefaultAzureCredential
cred = credential.NewStaticV4(id, secret, "")
func (c *Client) SetToken(token string) error {
type Config struct { Password string `json:"password"` }
public string ClientSecret { get; set; }
DB_PASSWORD=${DB_PASSWORD:-postgres}
${API_TOKEN:?API_TOKEN is missing}
const token = process.env.TOKEN || "";
const secret = config.secret ?? "default";
INSERT INTO users (id, password) VALUES ($1, $2)
INSERT INTO users (name, password_hash) VALUES (?, ?);
cursor.execute("INSERT INTO u (name, password) VALUES (%s, %s)", (name, password))
credentials: admin / operator
Credentials: user/password pairs
enable secret scanning for all repositories
enable password authentication in sshd
token <- readLine
<td>Password</td><td>required</td>
<dt>Password</dt><dd>At least 12 characters</dd>
Das Kennwort ist falsch.
let token = Some("token");
echo "$DB_PASSWORD" | docker secret create db_password -
echo done | gh secret set X
秘密鍵: /home/me/.ssh/id_ed25519
秘密鍵は暗号化されています
暗証番号: 4桁の数字
change_password(user, new_password)
*token*: the value
DB_PASSWORD=$(cat /run/secrets/db_password)
PASSWORD=$1
export TOKEN="$(gh auth token)"
token: ${{ secrets.GITHUB_TOKEN }}
password: {{ .Values.db.password }}
password: !vault |
api_key: <your api key>
api_key = "YOUR_API_KEY_HERE"
OPENAI_API_KEY=sk-...
OPENAI_API_KEY=your-key-here
token: xxxxxxxxxxxxxxxxxxxx
password: ********
Authorization: Bearer <token>
Authorization: Bearer $TOKEN
curl -u "$USER:$PASS" https://example.com
curl -u user https://example.com
mysql -u root -p
mkdir -p /var/lib/data && cp -p a b
docker run -p 8080:80 -u 1000:1000 nginx
ssh -p 2222 deploy@build-host
git push -u origin main
psql -U postgres -p 5433 app
python -u train.py -p 10
<input type="password" name="password" placeholder="Password">
<label for="password">Password</label>
The token is used to sign. Enter the password: then press return.
Never tell a secret: it is one no more.
Your password must have 8 characters, 1 digit and 1 sign.
A password is required. The password is wrong. My password was reset.
The API key is missing; the token is invalid or expired.
The key is to test early. The secret is that there is none.
パスワードは8文字以上にしてください。トークンは設定に書かないでください。
秘密鍵は安全な場所に保存します。
"usage": {"input_tokens": 1234, "output_tokens": 987, "cache_read_input_tokens": 51799}
{"token": " the", "logprob": -0.1}
"max_tokens": 4096, "token_count": 7, "tokens_per_second": 93.5
next_page_token: CAUQAA
"nextToken": null
primary_key = 'user_id', sort_key = 'created_at_v2'
cache_key = f"user:{user_id}:v2"
key={index}
"key": "src/components/Button.tsx"
React.createElement("li", { key: item.id })
map.set(key, value); hotkey: ctrl+shift+p
"sourceBundleKey": "workspaces/ws_r25wk6dk/deployments/dep_b8lilwo4/source.tar.gz"
foreign_key: users_account_id
localStorage.getItem("auth_token_v2")
@pytest.fixture(scope="session")
@app.route("/login", methods=["POST"])
icon@2x.png logo@3x.webp sprite@1.5x.png
git@github.com:acme/shop.git
ssh://git@gitlab.example.com:2222/acme/shop.git
user@host:/srv/app
lodash@4.17.21 @types/node@20.11.5 react@^18.2.0 typescript@latest
"packageManager": "pnpm@9.1.2"
actions/checkout@v4 docker/build-push-action@v5.3.0
getty@tty1.service wg-quick@wg0.service
a @ b.T + c
x = A@B.reshape(3, 4)
foo@bar and @someone in the chat
postgres://localhost:5432/app
https://example.com/@scope/pkg
mongodb://localhost:27017,localhost:27018/app
https://user:${PASSWORD}@example.com
"openai": ("OPENAI_API_KEY", "https://api.openai.com/v1"),
if token._value is _NoValueSet.NO_VALUE_SET:
def resolve(api_key: _AzureApiKeyT | None, model: str) -> None:
output = token.close = `)$))${extglobStar}`;
command = ['docker', 'login', '-u', username, '-p', registry_password1]
"PasswordLastUsed": "2016-09-08T21:47:36Z",
"LockToken":"2294b3a1-eb60-4aa0-a86f-a3ae04329de9", "idempotency_token": "527c5358-2a1a-4b9e-b1b9-7293b0ddff42"
https://user:<password>@example.com
redis://cache:6379/0
https://github.com/acme/shop/blob/main/src/secrets/token_store.py#L10-L20
/home/me/projects/secrets/token_store.py
C:\Users\me\AppData\Local\Temp\secret_key_test.txt
src/main/resources/application-production.yml
s3://bucket/backups/2024-05-01/db-password-rotation.log
arn:aws:secretsmanager:us-east-1:123456789012:secret:prod/db-AbCdEf
arn:aws:iam::123456789012:role/service-role/token-exchange
projects/acme/secrets/db-password/versions/latest
secretKeyRef: {name: db, key: password}
passwordSecretRef: db-credentials
--from-literal=password=$DB_PASSWORD
.token-comment { color: #6a737d; background: #0d1117f0 }
--color-primary-500: oklch(0.62 0.19 259.81);
.btn-primary:hover{transform:translate3d(0,-1px,0)}
grid-template-columns: repeat(auto-fill,minmax(240px,1fr));
font: 400 1rem/1.5 "Segoe UI",Roboto,sans-serif
<path d="M12 2C6.48 2 2 6.48 2 12s4.48 10 10 10 10-4.48 10-10S17.52 2 12 2z"/>
transformers-4.41.2-py3-none-any.whl numpy-1.26.4-cp311-cp311-manylinux_2_17_x86_64.whl
gpt-4o-2024-08-06 claude-3-5-sonnet-20241022 gemini-2.5-pro-preview-05-06
claude-opus-4-20250514 text-embedding-3-large llama-3.1-70b-instruct
us-docker.pkg.dev/acme/api/server:v1.2.3-rc.4
linux-image-6.1.0-18-amd64 libssl3_3.0.11-1~deb12u2_amd64.deb
2025-11-02T10:11:12.123456789Z 2025-11-02_10-11-12
Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/120.0.0.0 Safari/537.36
0x7ffee4b5c9a8 0xdeadbeef 0x00007f9c1c3d2e40
test_password_is_hashed_with_sha256_and_salt_v2
some_rather_long_name_of_a_function_that_was_written_in_2024()
AbstractSingletonProxyFactoryBeanWithSecretKeyProvider2
getElementsByClassNameAndPasswordFieldV2
kSecAttrAccessibleWhenUnlockedThisDeviceOnly
EVP_PKEY_CTX_set1_hkdf_key SSL_CTX_use_PrivateKey_file
CONFIG_CRYPTO_USER_API_HASH=y CONFIG_KEYS=y
ERR_TLS_CERT_ALTNAME_INVALID PASSWORD_RESET_TOKEN_EXPIRED_V2
SELECT id, password_hash FROM users WHERE token = $1
UPDATE users SET password = :password WHERE id = :id
ALTER TABLE users ADD COLUMN api_key varchar(64) NOT NULL;
CREATE INDEX idx_users_reset_token ON users(reset_token);
AKIAIOSFODNN7EXAMPLE
task-123 and a risk-based-approach-to-2024, .desk-lamp-2000-xl
sk-learn-style-estimators pa-rticular as-needed-basis re_compile_patterns_once
hf_hub_download_with_retries api_org_members_list
test_live_reload_of_settings key_derivation_function_v2
The tokenizer splits "unbelievable" into 3 tokens; keyboard, monkey, passport, author.
tokens=128000 key_count=12 password_length=16 secret_name=db
Session ID: 0f8fad5b-d9cb-469f-a165-70867728950e
"sessionId":"0f8fad5b-d9cb-469f-a165-70867728950e","uuid":"7c9e6679-7425-40de-944b-e07fc1f90ae7"
originSessionId: 5834c1ee-18ef-4761-a251-478863eb2f10
Microsoft.Owin.Security.Cookies, Version=4.2.0.0, Culture=neutral, PublicKeyToken=31bf3856ad364e35
PASS review-output-v2
"sourceKey": "workspaces/ws_r25wk6dk/deployments/dep_b8lilwo4/source.tar.gz”,
#define CKM_TLS_MASTER_KEY_DERIVE  0x00000375UL
typedef struct SEC_PKCS12PrivateKeyBagStr SEC_PKCS12PrivateKeyBag;
override_settings(AUTH_USER_MODEL="auth_tests.CustomUserWithM2M")
refresh_token: DefaultMysqlColumn<{ name: "refresh_token" }>
clientSecret: env.AUTH_AZURE_AD_B2C_SECRET,
nid_key = self._lib.NID_aes_256_cbc
'password' => 'required|confirmed', 'secret' => 'encrypted:array'
task-output-waiting-1771461834145 msg_bdrk_01V91eP4A4pz9PBJ2GhoAhVZ toolu_bdrk_01XyB4HVGdLNXT2X8cKkuWGy
./assets/vipul-f0eb1acf0da84c06a50c5b2c59932001997786b176dec02bd16128ee9ea83628.png
"session_id": "ses_4f2c8a1b9d3e", "sessionId": "01HZX3KQ"
commit-msg: auth: fix the token refresh (#1234)
feat(auth): add OAuth2 PKCE, RFC7636
error: secret "db-credentials" not found
Error: Cannot find module './secrets/token'
WARN  password authentication failed for user "app"
fatal: could not read Password for 'https://example.com': terminal prompts disabled
Enter passphrase for key '/home/me/.ssh/id_ed25519':
ssh-ed25519 is the key type; known_hosts:12
Cookie: lang=en; theme=dark
Set-Cookie: theme=dark; Path=/; Max-Age=3600
document.cookie = "theme=" + theme
if (req.cookies.session === undefined) return next();
sig = inspect.signature(func)
config.sig=auto
"signature": "verify(payload, header)"
kind: Secret
kind: ConfigMap
metadata: {name: api-7d9f8c6b5-x2x4z}
[TOKEN] and [PASSWORD] are masks; password=[PASSWORD]
ws-gateway-worker-7c9d8b6f5d-k2x4q 1/1 Running
DB_PASSWORD=$DB_PASSWORD_2
DB_PASSWORD=[REDACTED]
DB_PASSWORD=%DB_PASSWORD%
DB_PASSWORD=~/.secrets/db
DB_PASSWORD=config.database.password
{"password": ["This field is required.", "Use at least 12 characters."]}
["tool", "--password", "--verbose"]
["docker", "run", "-p", "8080:80", "-u", "1000:1000", "nginx"]
{"required": ["user", "password", "token"]}
curl -k https://example.com/builds/a1b2c3d4e5
grep -w a1b2c3d4e5 -a file.bin
gh secret set DEPLOY_KEY < key.pem
kubectl get secret db -o yaml
senha: obrigatória
пароль должен быть длинным
C:\new\test\users\a1b2c3d4e5f6
"""  # noqa: RUF001

_BLOCKS = [
    "a\tb\tc\npassword-x\tversion7.txt\t/*password-x*\nnew-script-5.4\tversion5.txt\t/*new-script-5.4*\n",
    "password:\n  type: string\n  minLength: 12\n",
    "def login(user, password):\n    connect(user, password)\n",
    "| field | password |\n|---|---|\n| type | string |\n| required | yes |\n",
    "user,password\nbob,required\nalice,\n",
    "The file ends with\n-----END RSA PRIVATE KEY-----\n",
    "apiVersion: v1\nkind: Secret\nmetadata:\n  name: db\ntype: Opaque\n",
    '{"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "db"}}',
    "apiVersion: v1\nkind: ConfigMap\ndata:\n  greeting: aGVsbG8gd29ybGQsIGhvdw==\n",
    "interface Login {\n  user: string;\n  password: string;\n  token?: string;\n}\n",
    "def login(user: str, password: str, token: str | None = None) -> Session:\n    ...\n",
    "class User(BaseModel):\n    password: SecretStr\n    api_key: Annotated[str, Field(min_length=20)]\n",
    "const { password, token } = req.body;\nif (!password) throw new Error('Password required');\n",
    "-----BEGIN CERTIFICATE-----\nMIIDdzCCAl+gAwIBAgIEAgAAuTANBgkqhkiG9w0BAQUFADBaMQswCQ\n-----END CERTIFICATE-----\n",
    "-----BEGIN PUBLIC KEY-----\nMIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEA7y\n-----END PUBLIC KEY-----\n",
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGJbQ2x4M3p5V0p1b2x3T2d5cE5kZk5nR2h4 deploy key",
    "\x1b[32mPASS\x1b[0m src/auth/token.test.ts\n\x1b[31mFAIL\x1b[0m src/password.test.ts\n",
    "\\u001b[32m✓\\u001b[39m hashes the password \\u001b[2m(12ms)\\u001b[22m",
    "Usage: tool login [OPTIONS]\n  --password TEXT  The password.\n  --token TEXT     A token.\n  -p, --port INT\n",
    "| name | type | default |\n|---|---|---|\n| password | string | none |\n| token | string | none |\n",
    "steps:\n- uses: actions/checkout@v4\n  with:\n    token: ${{ github.token }}\n    fetch-depth: 0\n",
]


def _drawn(rng: random.Random) -> list[str]:
    def letters(alphabet: str, length: int) -> str:
        return "".join(rng.choice(alphabet) for _ in range(length))

    base58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
    alnum = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
    hexa = "0123456789abcdef"
    picture = base64.b64encode(rng.randbytes(3000)).decode()
    return [
        "ghp_" + "x" * 36,
        f'"tool_use_id": "toolu_01{letters(base58, 22)}"',
        f'{{"id": "call_{letters(alnum, 24)}", "type": "function"}}',
        f"msg_01{letters(base58, 22)} req_011{letters(base58, 21)}",
        f"chatcmpl-{letters(alnum, 29)} resp_{letters(hexa, 48)}",
        f'"id":"fc_{letters(hexa, 48)}","call_id":"call_{letters(alnum, 24)}"',
        f"rs_{letters(hexa, 48)} run_{letters(alnum, 24)} thread_{letters(alnum, 24)}",
        f"functions.read_file:{rng.randrange(10)} chatcmpl-tool-{letters(hexa, 32)}",
        f'"uuid": "{uuid.UUID(bytes=rng.randbytes(16), version=4)}"',
        f"request id: {uuid.UUID(bytes=rng.randbytes(16), version=4)}",
        f"commit {letters(hexa, 40)}",
        f"index {letters(hexa, 7)}..{letters(hexa, 7)} 100644",
        f"{letters(hexa, 12)} refs/heads/main",
        f"sha256:{letters(hexa, 64)}",
        f"image: nginx@sha256:{letters(hexa, 64)}",
        f"md5 {letters(hexa, 32)}  file.tar.gz",
        f"{letters(hexa, 64)}  orihon-0.1.0.tar.gz",
        f'"integrity": "sha512-{base64.b64encode(rng.randbytes(64)).decode()}"',
        f"    --hash=sha256:{letters(hexa, 64)} \\",
        f"golang.org/x/net v0.24.0 h1:{base64.b64encode(rng.randbytes(32)).decode()}",
        f'checksum = "{letters(hexa, 64)}"',
        f"main.{letters(hexa, 8)}.js vendors-{letters(hexa, 20)}.chunk.css",
        f"/_next/static/chunks/{letters(hexa, 16)}.js?dpl=dpl_{letters(alnum, 28)}",
        f"![x](data:image/png;base64,{picture})",
        f'{{"type": "image", "source": {{"data": "{picture}"}}}}',
        f'"signature": "{base64.b64encode(rng.randbytes(200)).decode()}"',
        f"cus_{letters(alnum, 14)} pi_{letters(alnum, 24)} evt_{letters(alnum, 24)}",
        f"arn:aws:ecs:eu-west-1:123456789012:task/app/{letters(hexa, 32)}",
        f"i-0{letters(hexa, 16)} vol-0{letters(hexa, 16)} subnet-0{letters(hexa, 16)}",
        f"container {letters(hexa, 64)} exited",
        f"traceparent: 00-{letters(hexa, 32)}-{letters(hexa, 16)}-01",
        f'ETag: "{letters(hexa, 32)}"',
        f"file-{letters(alnum, 24)} asst_{letters(alnum, 24)} vs_{letters(hexa, 32)}",
    ]
