"""Made-up secrets of many kinds in the texts that carry them, and texts that must stay as they are.

Every value is drawn from a seeded generator when the list is asked for, so no complete token stands in this file and
no host's scanner refuses to take it. A line of a table is the kind, the shape, and the name under which the value
usually stands. In a shape `{62:36}` stands for 36 letters and digits; `_ALPHABETS` has the other alphabets.
"""

from __future__ import annotations

import base64
import json
import random
import re
import string
from collections.abc import Callable
from typing import NamedTuple
from urllib.parse import quote

from bench.shapes_kept import kept

__all__ = ["Shape", "kept", "shapes"]

VARIANTS = 4  # texts for each kind


class Shape(NamedTuple):
    """One secret in one text."""

    kind: str
    text: str
    secret: str


_ALPHABETS = {
    "62": string.ascii_letters + string.digits,
    "az": string.ascii_letters,
    "low": string.ascii_lowercase + string.digits,
    "abc": string.ascii_lowercase,
    "up": string.ascii_uppercase + string.digits,
    "ABC": string.ascii_uppercase,
    "hex": "0123456789abcdef",
    "HEX": "0123456789ABCDEF",
    "num": string.digits,
    "url": string.ascii_letters + string.digits + "-_",
    "b64": string.ascii_letters + string.digits + "+/",
    "b32": string.ascii_uppercase + "234567",
    "sym": string.ascii_letters + string.digits + "!@#$%^*_+?~",
    "django": string.ascii_lowercase + string.digits + "!@#$%^&*(-_=+)",
}

# Tokens that say themselves what they are. They are masked in any text, with a name or without.
_TOKENS = """
github-classic | ghp_{62:36} | GITHUB_TOKEN
github-oauth | gho_{62:36} | GH_TOKEN
github-user | ghu_{62:36} | GITHUB_TOKEN
github-server | ghs_{62:36} | GITHUB_TOKEN
github-refresh | ghr_{62:76} | GITHUB_REFRESH
github-fine-grained | github_pat_{62:22}_{62:59} | GITHUB_PAT
gitlab-personal | glpat-{url:20} | GITLAB_TOKEN
gitlab-personal-letters | glpat-{az:20} | GITLAB_TOKEN
gitlab-routable | glpat-{url:27}.01.{low:9} | GITLAB_TOKEN
gitlab-runner | glrt-{url:20} | RUNNER_TOKEN
gitlab-trigger | glptt-{hex:40} | TRIGGER_TOKEN
gitlab-deploy | gldt-{url:20} | DEPLOY_TOKEN
gitlab-job | glcbt-{hex:2}_{url:20} | CI_JOB_TOKEN
gitlab-feed | glft-{url:20} | FEED_TOKEN
gitlab-agent | glagent-{url:50} | AGENT_TOKEN
gitlab-instance-prefix | acme-glpat-{url:20} | GITLAB_TOKEN
bitbucket-app | ATBB{62:32} | BITBUCKET_APP_PASSWORD
bitbucket-server | BBDC-{b64:44} | BITBUCKET_TOKEN
atlassian | ATATT3{url:186}={HEX:8} | JIRA_API_TOKEN
openai-legacy | sk-{62:20}T3BlbkFJ{62:20} | OPENAI_API_KEY
openai-project | sk-proj-{url:74}T3BlbkFJ{url:74} | OPENAI_API_KEY
openai-service | sk-svcacct-{url:58}T3BlbkFJ{url:58} | OPENAI_API_KEY
openai-admin | sk-admin-{url:58}T3BlbkFJ{url:58} | OPENAI_ADMIN_KEY
anthropic | sk-ant-api03-{url:93}AA | ANTHROPIC_API_KEY
anthropic-admin | sk-ant-admin01-{url:93}AA | ANTHROPIC_ADMIN_KEY
anthropic-oauth | sk-ant-oat01-{url:93}AA | CLAUDE_CODE_OAUTH_TOKEN
anthropic-session | sk-ant-sid01-{url:86}-{url:6}AA | SESSION_KEY
openrouter | sk-or-v1-{hex:64} | OPENROUTER_API_KEY
deepseek | sk-{hex:32} | DEEPSEEK_API_KEY
moonshot | sk-{62:48} | MOONSHOT_API_KEY
groq | gsk_{62:52} | GROQ_API_KEY
xai | xai-{62:80} | XAI_API_KEY
perplexity | pplx-{62:48} | PERPLEXITY_API_KEY
together | tgp_v1_{url:43} | TOGETHER_API_KEY
cerebras | csk-{low:48} | CEREBRAS_API_KEY
fireworks | fw_{62:24} | FIREWORKS_API_KEY
fireworks-3z | fw_3Z{62:22} | FIREWORKS_API_KEY
replicate | r8_{62:37} | REPLICATE_API_TOKEN
hugging-face | hf_{az:34} | HF_TOKEN
hugging-face-org | api_org_{az:34} | HF_TOKEN
voyage | pa-{url:43} | VOYAGE_API_KEY
jina | jina_{hex:32}{url:28} | JINA_API_KEY
firecrawl | fc-{hex:32} | FIRECRAWL_API_KEY
tavily | tvly-dev-{62:32} | TAVILY_API_KEY
tavily-old | tvly-{62:32} | TAVILY_API_KEY
modal-id | ak-{62:22} | MODAL_TOKEN_ID
modal-secret | as-{62:22} | MODAL_TOKEN_SECRET
browserbase | bb_live_{url:27} | BROWSERBASE_API_KEY
resend | re_{62:8}_{62:24} | RESEND_API_KEY
honeycomb-ingest | hcaik_{low:58} | HONEYCOMB_API_KEY
honeycomb-config | hcalk_{low:26} | HONEYCOMB_KEY
cursor | crsr_{hex:64} | CURSOR_API_KEY
cursor-old | key_{hex:64} | CURSOR_API_KEY
sonar-user | squ_{hex:40} | SONAR_TOKEN
sonar-project | sqp_{hex:40} | SONAR_TOKEN
elevenlabs | sk_{hex:48} | ELEVENLABS_API_KEY
wandb | wandb_v1_{url:77} | WANDB_API_KEY
langsmith | lsv2_pt_{hex:32}_{hex:10} | LANGSMITH_API_KEY
langfuse | sk-lf-{hex:8}-{hex:4}-{hex:4}-{hex:4}-{hex:12} | LANGFUSE_SECRET_KEY
pinecone | pcsk_{62:6}_{62:63} | PINECONE_API_KEY
nvidia | nvapi-{url:64} | NVIDIA_API_KEY
runpod | rpa_{up:40}{low:6} | RUNPOD_API_KEY
e2b | e2b_{hex:40} | E2B_API_KEY
daytona | dtn_{hex:64} | DAYTONA_API_KEY
brave | BSA{url:28} | BRAVE_API_KEY
luma | luma-{hex:8}-{hex:4}-{hex:4}-{hex:4}-{hex:12}-{hex:8} | LUMA_API_KEY
cartesia | sk_car_{62:22} | CARTESIA_API_KEY
helicone | sk-helicone-{low:7}-{low:7}-{low:7}-{low:7} | HELICONE_API_KEY
aws-access-key | AKIA{b32:16} | AWS_ACCESS_KEY_ID
aws-temporary-key | ASIA{b32:16} | AWS_ACCESS_KEY_ID
aws-session | IQoJb3JpZ2luX2Vj{b64:320}== | AWS_SESSION_TOKEN
aws-bedrock | ABSKQmVkcm9ja0FQSUtleS1{62:109}= | AWS_BEARER_TOKEN_BEDROCK
google-api | AIzaSy{url:33} | GOOGLE_API_KEY
google-oauth-access | ya29.a0{url:140} | GOOGLE_TOKEN
google-client-secret | GOCSPX-{url:28} | GOOGLE_CLIENT_SECRET
google-refresh | 1//0{url:60} | refresh_token
google-auth-code | 4/0A{url:70} | code
google-hmac | GOOG1E{up:55} | GCS_ACCESS_KEY
gemini-bound | AQ.Ab8{url:48} | GEMINI_API_KEY
azure-ad | {62:3}8Q~{url:34} | AZURE_CLIENT_SECRET
azure-storage | {b64:76}+ASt{b64:6}== | AccountKey
azure-cosmos | {62:76}ACDb{62:6}== | COSMOS_KEY
azure-devops | {62:76}AZDO{62:4} | AZURE_DEVOPS_EXT_PAT
azure-openai | {62:52}JQQJ99{62:10}ACYeBjFXJ3w3AAABACOG{62:4} | AZURE_OPENAI_API_KEY
azure-functions | {url:44}AzFu{url:6}== | FUNCTION_KEY
alibaba | LTAI5t{62:18} | ALIBABA_CLOUD_ACCESS_KEY_ID
tencent | AKID{62:32} | TENCENT_SECRET_ID
volcengine | AKLT{62:43} | VOLC_ACCESSKEY
yandex-iam | t1.{url:40}.{url:86} | YC_TOKEN
yandex-oauth | y0_{url:55} | YANDEX_TOKEN
scaleway | SCW{up:17} | SCW_ACCESS_KEY
digitalocean | dop_v1_{hex:64} | DIGITALOCEAN_TOKEN
digitalocean-oauth | doo_v1_{hex:64} | DO_TOKEN
fly-v2 | fm2_{b64:180} | FLY_API_TOKEN
fly-v1 | FlyV1 fm2_{b64:120} | FLY_ACCESS_TOKEN
render | rnd_{62:32} | RENDER_API_KEY
heroku | HRKU-AA{url:58} | HEROKU_API_KEY
netlify | nfp_{62:36} | NETLIFY_AUTH_TOKEN
vercel | vcp_{62:56} | VERCEL_TOKEN
vercel-gateway | vck_{62:56} | AI_GATEWAY_API_KEY
deno | ddp_{62:36} | DENO_DEPLOY_TOKEN
cloudflare-account | cfat_{62:48} | CLOUDFLARE_API_TOKEN
cloudflare-user | cfut_{62:48} | CF_API_TOKEN
cloudflare-origin | v1.0-{hex:24}-{hex:146} | CLOUDFLARE_ORIGIN_CA_KEY
npm | npm_{62:36} | NPM_TOKEN
pypi | pypi-AgEIcHlwaS5vcmc{url:150} | TWINE_PASSWORD
rubygems | rubygems_{hex:48} | GEM_HOST_API_KEY
crates | cio{62:32} | CARGO_REGISTRY_TOKEN
nuget | oy2{low:43} | NUGET_API_KEY
docker-pat | dckr_pat_{url:27} | DOCKER_PASSWORD
docker-swarm | SWMTKN-1-{low:50}-{low:25} | JOIN_TOKEN
terraform-cloud | {62:14}.atlasv1.{url:67} | TF_TOKEN_app_terraform_io
pulumi | pul-{hex:40} | PULUMI_ACCESS_TOKEN
doppler | dp.pt.{62:43} | DOPPLER_TOKEN
doppler-service | dp.st.prd.{62:43} | DOPPLER_TOKEN
vault-service | hvs.{url:90} | VAULT_TOKEN
vault-batch | hvb.{url:150} | VAULT_TOKEN
infisical | st.{hex:24}.{hex:32}.{hex:32} | INFISICAL_TOKEN
onepassword | ops_eyJ{url:250} | OP_SERVICE_ACCOUNT_TOKEN
tailscale | tskey-auth-{62:17}-{62:32} | TS_AUTHKEY
sentry-org | sntrys_{b64:140}_{b64:43} | SENTRY_AUTH_TOKEN
sentry-user | sntryu_{hex:64} | SENTRY_AUTH_TOKEN
datadog-pat | ddpat_{62:40} | DD_PAT
newrelic-user | NRAK-{up:27} | NEW_RELIC_API_KEY
newrelic-license | {hex:36}NRAL | NEW_RELIC_LICENSE_KEY
grafana-cloud | glc_eyJ{b64:120} | GRAFANA_CLOUD_TOKEN
grafana-account | glsa_{62:32}_{hex:8} | GRAFANA_TOKEN
dynatrace | dt0c01.{up:24}.{up:64} | DT_TOKEN
axiom | xaat-{hex:8}-{hex:4}-{hex:4}-{hex:4}-{hex:12} | AXIOM_TOKEN
posthog | phx_{62:43} | POSTHOG_API_KEY
launchdarkly | api-{hex:8}-{hex:4}-{hex:4}-{hex:4}-{hex:12} | LD_API_KEY
statsig | secret-{62:42} | STATSIG_SECRET
buildkite | bkua_{hex:40} | BUILDKITE_TOKEN
buildkite-agent | bkaa_{hex:60} | BUILDKITE_AGENT_TOKEN
circleci | CCIPAT_{62:22}_{hex:40} | CIRCLE_TOKEN
jfrog | AKCp8{62:68} | ARTIFACTORY_API_KEY
jfrog-reference | cmVmdGtuOj{62:54} | JF_ACCESS_TOKEN
databricks | dapi{hex:32} | DATABRICKS_TOKEN
databricks-oauth | dose{hex:32} | DATABRICKS_CLIENT_SECRET
dbt | dbtc_{url:40} | DBT_TOKEN
prefect | pnu_{62:36} | PREFECT_API_KEY
planetscale | pscale_tkn_{url:43} | PLANETSCALE_TOKEN
planetscale-password | pscale_pw_{url:43} | DATABASE_PASSWORD
neon | napi_{low:64} | NEON_API_KEY
supabase-pat | sbp_{hex:40} | SUPABASE_ACCESS_TOKEN
supabase-secret | sb_secret_{url:31} | SUPABASE_SECRET_KEY
aiven | AVNS_{url:19} | AIVEN_PASSWORD
mongodb-atlas | mdb_sa_sk_{url:40} | ATLAS_SECRET
xata | xau_{62:40} | XATA_API_KEY
confluent | cflt{b64:60} | CONFLUENT_SECRET
slack-bot | xoxb-{num:12}-{num:13}-{62:24} | SLACK_BOT_TOKEN
slack-user | xoxp-{num:12}-{num:12}-{num:13}-{hex:32} | SLACK_TOKEN
slack-app | xapp-1-A{up:10}-{num:13}-{hex:64} | SLACK_APP_TOKEN
slack-cookie | xoxd-{62:60}%2F{62:40}%3D | SLACK_COOKIE
discord-bot | M{62:23}.G{url:5}.{url:38} | DISCORD_TOKEN
telegram-bot | {num:10}:AA{url:33} | TELEGRAM_BOT_TOKEN
twilio-key | SK{hex:32} | TWILIO_API_KEY
twilio-account | AC{hex:32} | TWILIO_ACCOUNT_SID
sendgrid | SG.{url:22}.{url:43} | SENDGRID_API_KEY
brevo | xkeysib-{hex:64}-{62:16} | BREVO_API_KEY
mailgun | key-{hex:32} | MAILGUN_API_KEY
mailchimp | {hex:32}-us14 | MAILCHIMP_API_KEY
mailersend | mlsn.{hex:64} | MAILERSEND_API_KEY
onesignal | os_v2_app_{low:103} | ONESIGNAL_API_KEY
stripe-live | sk_live_{62:99} | STRIPE_SECRET_KEY
stripe-test | sk_test_{62:24} | STRIPE_SECRET_KEY
stripe-restricted | rk_live_{62:99} | STRIPE_KEY
stripe-webhook | whsec_{b64:32} | STRIPE_WEBHOOK_SECRET
svix-webhook | whsec_{b64:43}= | WEBHOOK_SECRET
square | EAAA{url:60} | SQUARE_ACCESS_TOKEN
square-secret | sq0csp-{url:43} | SQUARE_SECRET
shopify | shpat_{hex:32} | SHOPIFY_ACCESS_TOKEN
shopify-shared | shpss_{hex:32} | SHOPIFY_SECRET
razorpay | rzp_live_{62:14} | RAZORPAY_KEY_ID
flutterwave | FLWSECK_TEST-{hex:32}-X | FLW_SECRET_KEY
paddle | pdl_live_apikey_{low:26}_{62:22}_{62:3} | PADDLE_API_KEY
polar | polar_oat_{62:43} | POLAR_ACCESS_TOKEN
plaid | access-production-{hex:8}-{hex:4}-{hex:4}-{hex:4}-{hex:12} | PLAID_ACCESS_TOKEN
shippo | shippo_live_{hex:40} | SHIPPO_TOKEN
easypost | EZAK{62:54} | EASYPOST_API_KEY
duffel | duffel_live_{url:43} | DUFFEL_ACCESS_TOKEN
mercury | secret-token:mercury_production_{62:40}_yrucrem | MERCURY_TOKEN
ramp | ramp_sec_{62:48} | RAMP_CLIENT_SECRET
adyen | AQE{62:60}-{b64:43}=-{url:16} | ADYEN_API_KEY
hubspot | pat-na1-{hex:8}-{hex:4}-{hex:4}-{hex:4}-{hex:12} | HUBSPOT_TOKEN
notion | ntn_{num:11}{62:35} | NOTION_TOKEN
notion-old | secret_{62:43} | NOTION_API_KEY
linear | lin_api_{62:40} | LINEAR_API_KEY
airtable | pat{62:14}.{hex:64} | AIRTABLE_PAT
asana | 2/{num:16}/{num:16}:{hex:32} | ASANA_TOKEN
trello | ATTA{hex:64}{HEX:8} | TRELLO_TOKEN
clickup | pk_{num:8}_{up:32} | CLICKUP_TOKEN
figma | figd_{url:40} | FIGMA_TOKEN
contentful | CFPAT-{url:43} | CONTENTFUL_TOKEN
typeform | tfp_{url:44}_{url:14} | TYPEFORM_TOKEN
postman | PMAK-{hex:24}-{hex:34} | POSTMAN_API_KEY
dropbox | sl.u.{url:130} | DROPBOX_TOKEN
adobe | p8e-{url:32} | ADOBE_CLIENT_SECRET
facebook | EAACEdEose0cBA{62:80} | FB_ACCESS_TOKEN
linkedin | WPL_AP1.{62:16}.{62:8}== | LINKEDIN_CLIENT_SECRET
pinterest | pina_{up:40} | PINTEREST_TOKEN
lichess | lip_{62:20} | LICHESS_TOKEN
wakatime | waka_{hex:8}-{hex:4}-{hex:4}-{hex:4}-{hex:12} | WAKATIME_API_KEY
readme | rdme_{low:70} | README_API_KEY
apify | apify_api_{62:36} | APIFY_TOKEN
rapidapi | {hex:10}msh{hex:15}p1{hex:6}jsn{hex:12} | RAPIDAPI_KEY
mapbox | sk.eyJ{62:80}.{url:22} | MAPBOX_SECRET_TOKEN
age | AGE-SECRET-KEY-1{up:58} | AGE_KEY
jwt | eyJhbGciOiJIUzI1NiJ9.eyJ{url:60}.{url:43} | ACCESS_TOKEN
kubernetes-account | eyJhbGciOiJSUzI1NiIsImtpZCI6{url:30}.eyJ{url:300}.{url:342} | token
openshift | sha256~{url:43} | OC_TOKEN
okta-ssws | SSWS 00{url:40} | Authorization
trigger-dev | tr_prod_{62:20} | TRIGGER_SECRET_KEY
inngest | signkey-prod-{hex:64} | INNGEST_SIGNING_KEY
unkey | unkey_{62:24} | UNKEY_ROOT_KEY
val-town | vtwn_{62:40} | VALTOWN_TOKEN
cal-com | cal_live_{hex:32} | CAL_API_KEY
raycast | rca_{hex:64} | RAYCAST_TOKEN
some-vendor-live | acme_live_{62:32} | ACME_API_KEY
some-vendor-secret | acme_secret_{62:40} | ACME_SECRET
some-vendor-sk | acme_sk_{low:40} | ACME_KEY
some-vendor-pat | acmepat_{62:40} | ACME_PAT
onepassword-secret | A3-{up:6}-{up:11}-{up:5}-{up:5}-{up:5} | OP_SECRET_KEY
adafruit | aio_{62:28} | AIO_KEY
harness | pat.{62:22}.{62:24}.{62:20} | HARNESS_API_KEY
infracost | ico-{62:32} | INFRACOST_API_KEY
octopus | API-{up:26} | OCTOPUS_API_KEY
settlemint | sm_aat_{62:16} | SETTLEMINT_TOKEN
snyk-uat | snyk_uat.{hex:8}.{url:60} | SNYK_TOKEN
sourcegraph | sgp_{hex:16}_{hex:40} | SRC_ACCESS_TOKEN
amp | sgamp_user_{up:26}_{hex:64} | AMP_API_KEY
azure-acr | {62:42}+ACR{62:6} | ACR_PASSWORD
azure-search | {62:42}AzSe{62:6} | AZURE_SEARCH_KEY
fcm | AAAA{url:7}:APA91b{url:134} | FCM_SERVER_KEY
tailscale-api | tskey-api-{62:17}-{62:32} | TS_API_KEY
tailscale-client | tskey-client-{62:17}-{62:32} | TS_OAUTH
nostr | nsec1{low:58} | NOSTR_KEY
bip32 | xprv9s21ZrQH143K{62:95} | XPRV
zhipu | {hex:32}.{62:16} | ZHIPUAI_API_KEY
minimax | sk-api-{url:100} | MINIMAX_API_KEY
minimax-plan | sk-cp-{url:100} | MINIMAX_API_KEY
kimi | sk-kimi-{62:64} | KIMI_API_KEY
qianfan | bce-v3/ALTAK-{62:21}/{hex:40} | QIANFAN_API_KEY
chutes | cpk_{hex:32}.{hex:32}.{62:32} | CHUTES_API_KEY
anyscale | aph0_{62:40} | ANYSCALE_CLI_TOKEN
anyscale-endpoint | esecret_{low:26} | ANYSCALE_API_KEY
novita | sk_{url:43} | NOVITA_API_KEY
lambda-cloud | secret_{low:12}_{hex:32}.{62:32} | LAMBDA_API_KEY
ydc | ydc-sk-{hex:16}-{62:32}-{hex:8} | YDC_API_KEY
mem0 | m0-{62:40} | MEM0_API_KEY
zep | z_eyJ{url:60}.{url:43} | ZEP_API_KEY
letta | sk-let-{b64:70}== | LETTA_API_KEY
browser-use | bu_{url:43} | BROWSER_USE_API_KEY
steel | ste-{62:64} | STEEL_API_KEY
hyperbrowser | hb_{hex:32} | HYPERBROWSER_API_KEY
scrapfly | scp-live-{hex:32} | SCRAPFLY_KEY
llamacloud | llx-{62:48} | LLAMA_CLOUD_API_KEY
braintrust | bt-st-{62:48} | BRAINTRUST_API_KEY
windsurf | sk-ws-01-{url:80} | WINDSURF_API_KEY
warp | wk-1.{hex:64} | WARP_API_KEY
factory | fk-{62:20}-{url:43} | FACTORY_API_KEY
devin | apk_user_{b64:60} | DEVIN_API_KEY
devin-cog | cog_{low:52} | DEVIN_API_KEY
coderabbit | cr-{hex:58} | CODERABBIT_API_KEY
relace | rlc-{url:40} | RELACE_API_KEY
stability | sk-{62:48} | STABILITY_API_KEY
runway | key_{hex:128} | RUNWAYML_API_SECRET
openai-ephemeral | ek_{hex:32} | EPHEMERAL
openai-sess | sess-{62:40} | OPENAI_SESSION
upstage | up_{62:29} | UPSTAGE_API_KEY
liveblocks | sk_prod_{url:64} | LIVEBLOCKS_SECRET
clerk | sk_live_{62:42} | CLERK_SECRET_KEY
workos | sk_test_a2V5{62:60} | WORKOS_API_KEY
stytch | secret-live-{url:35}= | STYTCH_SECRET
bitrise | bitpat-{url:43} | BITRISE_TOKEN
depot | depot_org_{hex:64} | DEPOT_TOKEN
depot-project | depot_project_{hex:64} | DEPOT_TOKEN
namespace | nsct_{62:40} | NSC_TOKEN
chromatic | chpt_{hex:15} | CHROMATIC_PROJECT_TOKEN
percy | web_{hex:64} | PERCY_TOKEN
socket | sktsec_{url:44}_api | SOCKET_TOKEN
logfire | pylf_v1_us_{62:43} | LOGFIRE_TOKEN
incident | inc_{hex:64} | INCIDENT_API_KEY
rootly | rootly_{hex:64} | ROOTLY_API_KEY
dbt-service | dbts_{url:40} | DBT_TOKEN
cockroach | CCDB1_{62:22}_{62:40} | COCKROACH_API_KEY
elastic | essu_{b64:80}== | EC_API_KEY
tinybird | p.eyJ{url:70}.{url:43} | TB_TOKEN
turbopuffer | tpuf_{62:32} | TURBOPUFFER_API_KEY
chroma | ck-{62:44} | CHROMA_API_KEY
linear-webhook | lin_wh_{62:40} | LINEAR_WEBHOOK_SECRET
paypal | A21AA{url:80} | PAYPAL_ACCESS_TOKEN
mollie | live_{62:30} | MOLLIE_API_KEY
paystack | sk_live_{hex:40} | PAYSTACK_SECRET
omise | skey_{low:19} | OMISE_SECRET_KEY
omise-test | skey_test_{low:19} | OMISE_SECRET_KEY
midtrans | SB-Mid-server-{url:24} | MIDTRANS_SERVER_KEY
mercadopago | APP_USR-{num:16}-{num:6}-{hex:32}-{num:9} | MP_ACCESS_TOKEN
xendit | xnd_production_{62:48} | XENDIT_KEY
checkout | sk_sbox_{low:27} | CKO_SECRET
figma-oauth | figo_{url:40} | FIGMA_TOKEN
slack-refresh | xoxe-1-{62:140} | SLACK_REFRESH
slack-rotated | xoxe.xoxp-1-{62:160} | SLACK_TOKEN
github-installation-jwt | ghs_123456_eyJ{url:100}.eyJ{url:100}.{url:86} | GITHUB_TOKEN
anthropic-refresh | sk-ant-ort01-{url:93}AA | CLAUDE_REFRESH
hf-oauth | hf_oauth_eyJ{url:90}.{url:60} | HF_TOKEN
hf-jwt | hf_jwt_eyJ{url:90}.eyJ{url:60}.{url:43} | HF_TOKEN
gitlab-oauth | gloas-{hex:64} | GITLAB_OAUTH
gitlab-scim | glsoat-{url:20} | SCIM
gitlab-ff | glffct-{url:20} | FF
gitlab-mail | glimt-{url:25} | MAIL
npm-granular | npm_{62:36} | NODE_AUTH_TOKEN
cargo-new | cio{62:32} | CARGO_TOKEN
clojars | CLOJARS_{hex:60} | CLOJARS_TOKEN
jsr | jsrp_{62:40} | JSR_TOKEN
open-vsx | ovsxp_{hex:8}-{hex:4}-{hex:4}-{hex:4}-{hex:12} | OVSX_PAT
docker-oat | dckr_oat_{62:32} | DOCKER_OAT
scalr | eyJhbGciOiJIUzI1NiJ9.eyJ{url:60}.{url:43} | SCALR_TOKEN
upcloud | ucat_{up:26} | UPCLOUD_TOKEN
pubnub | sec-c-{b64:64} | PUBNUB_SECRET_KEY
twilio-sid | SK{hex:32} | TWILIO_API_KEY_SID
payjp | sk_live_{hex:64} | PAYJP_SECRET_KEY
stripe-org | sk_org_live_{62:60} | STRIPE_ORG_KEY
grafana-old | eyJrIjoi{62:80}== | GRAFANA_API_KEY
firebase-ci | 1//0{url:100} | FIREBASE_TOKEN
argocd | eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJ{url:90}.{url:43} | ARGOCD_AUTH_TOKEN
n8n-api | n8n_api_{hex:80} | N8N_API_KEY
dify | app-{62:24} | DIFY_API_KEY
dify-dataset | dataset-{62:24} | DIFY_DATASET_KEY
langflow | sk-{url:43} | LANGFLOW_API_KEY
litellm | sk-{url:22} | LITELLM_MASTER_KEY
openwebui | sk-{hex:32} | OPENWEBUI_API_KEY
coze | pat_{62:64} | COZE_API_TOKEN
quicknode | QN_{hex:32} | QUICKNODE_API_KEY
jwk-private | {url:43} | d
"""

# Values that nothing but their name explains.
_NAMED = """
aws-secret | {b64:40} | AWS_SECRET_ACCESS_KEY aws_secret_access_key SecretAccessKey
gcs-secret | {b64:40} | GCS_SECRET_ACCESS_KEY secretAccessKey
mistral | {62:32} | MISTRAL_API_KEY
cohere | {62:40} | COHERE_API_KEY CO_API_KEY
deepgram | {hex:40} | DEEPGRAM_API_KEY
assemblyai | {hex:32} | ASSEMBLYAI_API_KEY
serper | {hex:40} | SERPER_API_KEY
serpapi | {hex:64} | SERPAPI_API_KEY
azure-cognitive | {hex:32} | AZURE_SPEECH_KEY AZURE_API_KEY
azure-devops-old | {low:52} | AZURE_DEVOPS_EXT_PAT SYSTEM_PAT
datadog-api | {hex:32} | DD_API_KEY DATADOG_API_KEY
datadog-app | {hex:40} | DD_APP_KEY
algolia-admin | {hex:32} | ALGOLIA_ADMIN_KEY
cloudflare-old | {url:40} | CLOUDFLARE_API_TOKEN
cloudflare-global | {hex:37} | CLOUDFLARE_API_KEY
fastly | {url:32} | FASTLY_API_TOKEN
hetzner | {62:64} | HCLOUD_TOKEN
linode | {hex:64} | LINODE_TOKEN
vultr | {up:36} | VULTR_API_KEY
railway | {hex:8}-{hex:4}-{hex:4}-{hex:4}-{hex:12} | RAILWAY_TOKEN
snyk | {hex:8}-{hex:4}-{hex:4}-{hex:4}-{hex:12} | SNYK_TOKEN
codecov | {hex:8}-{hex:4}-{hex:4}-{hex:4}-{hex:12} | CODECOV_TOKEN
heroku-old | {hex:8}-{hex:4}-{hex:4}-{hex:4}-{hex:12} | HEROKU_API_TOKEN
travis | {62:22} | TRAVIS_TOKEN
drone | {62:32} | DRONE_TOKEN
jenkins | 11{hex:32} | JENKINS_API_TOKEN
sonar-old | {hex:40} | SONAR_TOKEN
pagerduty | u+{url:18} | PAGERDUTY_TOKEN
opsgenie | {hex:8}-{hex:4}-{hex:4}-{hex:4}-{hex:12} | OPSGENIE_SECRET
rollbar | {hex:32} | ROLLBAR_ACCESS_TOKEN
segment-write | {62:32} | SEGMENT_WRITE_KEY
mixpanel | {hex:32} | MIXPANEL_TOKEN MIXPANEL_API_SECRET
amplitude | {hex:32} | AMPLITUDE_SECRET_KEY
intercom | dG9rOg{b64:54} | INTERCOM_ACCESS_TOKEN
zendesk | {62:40} | ZENDESK_API_TOKEN
twilio-auth | {hex:32} | TWILIO_AUTH_TOKEN
plaid-secret | {hex:30} | PLAID_SECRET
coinbase | {62:64} | COINBASE_API_SECRET
binance | {62:64} | BINANCE_SECRET_KEY BINANCE_API_KEY
kraken | {b64:86}== | KRAKEN_PRIVATE_KEY
alchemy | {url:32} | ALCHEMY_API_KEY
infura | {hex:32} | INFURA_SECRET INFURA_API_KEY
etherscan | {up:34} | ETHERSCAN_API_KEY
ethereum-key | 0x{hex:64} | PRIVATE_KEY WALLET_PRIVATE_KEY
openweather | {hex:32} | OPENWEATHER_API_KEY
twitter-secret | {62:50} | TWITTER_API_SECRET
twitch | {low:30} | TWITCH_CLIENT_SECRET
spotify | {hex:32} | SPOTIFY_CLIENT_SECRET
discord-client | {url:32} | DISCORD_CLIENT_SECRET
facebook-app | {hex:32} | FACEBOOK_APP_SECRET
pusher | {hex:20} | PUSHER_APP_SECRET
ably | {62:6}.{62:6}:{url:43} | ABLY_API_KEY
mux | {b64:75} | MUX_TOKEN_SECRET
cloudinary | {url:27} | CLOUDINARY_API_SECRET
meraki | {hex:40} | MERAKI_DASHBOARD_API_KEY
django-secret | {sym:50} | DJANGO_SECRET_KEY
rails-master | {hex:32} | RAILS_MASTER_KEY
rails-base | {hex:128} | SECRET_KEY_BASE
nextauth | {b64:43}= | NEXTAUTH_SECRET AUTH_SECRET
laravel | base64:{b64:43}= | APP_KEY
jwt-signing | {62:64} | JWT_SECRET
encryption | {hex:64} | ENCRYPTION_KEY
oauth-client | {62:40} | CLIENT_SECRET OAUTH_CLIENT_SECRET client_secret
fal | {hex:8}-{hex:4}-{hex:4}-{hex:4}-{hex:12}:{hex:32} | FAL_KEY FAL_API_KEY
ngrok | 2{62:26}_{62:21} | NGROK_AUTHTOKEN
short-secret | {62:12} | CLIENT_SECRET client_secret API_SECRET
short-token | {62:12} | ACCESS_TOKEN token api_token
medium-token | {62:20} | SERVICE_TOKEN authToken
lower-token | {low:24} | BOT_TOKEN webhook_token
maxmind | {62:6}_{62:29}_mmk | MAXMIND_LICENSE_KEY
bitcoin-wif | K{62:51} | PRIVATE_KEY
iflytek | {hex:32}:{62:32} | SPARK_API_PASSWORD
siliconflow | sk-{abc:48} | SILICONFLOW_API_KEY
baseten | {62:8}.{62:32} | BASETEN_API_KEY
exa | {hex:8}-{hex:4}-{hex:4}-{hex:4}-{hex:12} | EXA_API_KEY
composio | ak_{url:20} | COMPOSIO_API_KEY
bitwarden-machine | 0.{hex:8}-{hex:4}-{hex:4}-{hex:4}-{hex:12}.{62:30}:{b64:22}== | BWS_ACCESS_TOKEN
elastic-b64 | {b64:58}== | ELASTIC_API_KEY
zoho | 1000.{hex:32}.{hex:32} | ZOHO_REFRESH_TOKEN
hex-pm | {hex:32} | HEX_API_KEY
vsce | {low:52} | VSCE_PAT
quay | {up:64} | QUAY_PASSWORD
cloudsmith | {hex:40} | CLOUDSMITH_API_KEY
buf | {hex:64} | BUF_TOKEN
spacelift | {62:86} | SPACELIFT_API_KEY_SECRET
ovh | {62:32} | OVH_APPLICATION_SECRET
ovh-consumer | {62:32} | OVH_CONSUMER_KEY
cloudflare-r2 | {hex:64} | R2_SECRET_ACCESS_KEY
backblaze | K00{num:1}{b64:27} | B2_APPLICATION_KEY
wasabi | {b64:40} | WASABI_SECRET_KEY
bunny | {hex:8}-{hex:4}-{hex:4}-{hex:12}-{hex:4}-{hex:4} | BUNNY_API_KEY
ably-key | {62:6}.{62:6}:{url:43} | ABLY_KEY
vonage | {62:16} | VONAGE_API_SECRET
line | {b64:170}/1O/w1cDnyilFU= | LINE_CHANNEL_ACCESS_TOKEN
line-secret | {hex:32} | LINE_CHANNEL_SECRET
kintone | {62:40} | KINTONE_API_TOKEN
chatwork | {hex:32} | CHATWORK_API_TOKEN
backlog | {62:64} | BACKLOG_API_KEY
qiita | {hex:40} | QIITA_ACCESS_TOKEN
microcms | {62:36} | MICROCMS_API_KEY
sakura | {62:64} | SAKURACLOUD_ACCESS_TOKEN_SECRET
aws-iam-console | {62:14}!{sym:5} | AWS_CONSOLE_PASSWORD
expo | {url:40} | EXPO_TOKEN
wireguard | {b64:43}= | PrivateKey
wireguard-psk | {b64:43}= | PresharedKey
fernet | {url:43}= | FERNET_KEY
consul | {hex:8}-{hex:4}-{hex:4}-{hex:4}-{hex:12} | CONSUL_HTTP_TOKEN
nomad | {hex:8}-{hex:4}-{hex:4}-{hex:4}-{hex:12} | NOMAD_TOKEN
boundary | at_{62:10}_{62:60} | BOUNDARY_TOKEN
teleport | {hex:32} | TELEPORT_JOIN_TOKEN
mcp-inspector | {hex:64} | MCP_PROXY_AUTH_TOKEN
jupyter | {hex:48} | JUPYTER_TOKEN
n8n | {b64:32} | N8N_ENCRYPTION_KEY
flowise | {url:43}= | FLOWISE_APIKEY
portkey | {b64:28} | PORTKEY_API_KEY
modelscope | ms-{hex:8}-{hex:4}-{hex:4}-{hex:4}-{hex:12} | MODELSCOPE_API_TOKEN
poe | {url:43} | POE_API_KEY
roboflow | {62:20} | ROBOFLOW_API_KEY
bfl | {hex:8}-{hex:4}-{hex:4}-{hex:4}-{hex:12} | BFL_API_KEY
minio | {62:40} | MINIO_ROOT_PASSWORD
vapi | {hex:8}-{hex:4}-{hex:4}-{hex:4}-{hex:12} | VAPI_PRIVATE_KEY
livekit | {62:43} | LIVEKIT_API_SECRET
daily | {hex:64} | DAILY_API_KEY
zoom | {62:32} | ZOOM_CLIENT_SECRET
supabase-jwt | {b64:86}== | SUPABASE_JWT_SECRET
sonatype | {62:44} | SONATYPE_PASSWORD
gpg | {62:20} | GPG_PASSPHRASE
apple | {abc:4}-{abc:4}-{abc:4}-{abc:4} | APPLE_APP_SPECIFIC_PASSWORD
asc | {url:60} | APP_STORE_CONNECT_API_KEY_KEY
cocoapods | {hex:32} | COCOAPODS_TRUNK_TOKEN
nx | {b64:68}== | NX_CLOUD_ACCESS_TOKEN
turbo | {62:24} | TURBO_TOKEN
pinata | {hex:64} | PINATA_SECRET_API_KEY
moralis | {62:64} | MORALIS_API_KEY
tron | {hex:64} | TRON_PRIVATE_KEY
solana | {62:88} | SOLANA_PRIVATE_KEY
"""

# What people or generators choose as a password.
_PASSWORDS = """
password-8 | {62:8}
password-10 | {62:10}
password-12 | {62:12}
password-16 | {62:16}
password-24 | {62:24}
password-lower | {low:12}
password-letters | {az:12}
password-signs | {62:6}{sym:8}{62:2}
password-hex | {hex:16}
password-url-safe | {url:22}
"""


def fill(shape: str, rng: random.Random) -> str:
    """Draw the letters that a shape asks for."""

    def draw(found: re.Match[str]) -> str:
        letters = _ALPHABETS[found[1]]
        return "".join(rng.choice(letters) for _ in range(int(found[2])))

    return re.sub(r"\{(\w+):(\d+)\}", draw, shape)


Carrier = Callable[[str, str], str]  # the name and the value give the text

_ESC = "\x1b"
# A token stands in any of these, with its name or without.
_ANYWHERE: list[Carrier] = [
    lambda n, v: f"export {n}={v}",
    lambda n, v: f"{n}={v}\nDEBUG=true\n",
    lambda n, v: f'{n}="{v}"',
    lambda n, v: f"[default]\nregion = eu-west-1\n{n} = {v}\n",
    lambda n, v: json.dumps({"name": "app", n: v, "retries": 3}),
    lambda n, v: json.dumps({"type": "tool_result", "content": f"line 1\n{n}={v}\nline 3"}),
    lambda n, v: json.dumps(json.dumps({n: v})),
    lambda n, v: f"env:\n  - name: {n}\n    value: {v}\n",
    lambda n, v: f"services:\n  web:\n    environment:\n      {n}: {v}\n",
    lambda n, v: f"<config>\n  <{n}>{v}</{n}>\n</config>",
    lambda n, v: f'<add key="{n}" value="{v}" />',
    lambda n, v: f'const client = new Client({{ {n}: "{v}" }});',
    lambda n, v: f"{n} = '{v}'  # rotate me",
    lambda n, v: f'os.environ["{n}"] = "{v}"',
    lambda n, v: f'let {n}: &str = "{v}";',
    lambda n, v: f'private static final String {n} = "{v}";',
    lambda n, v: f'{n} := "{v}"',
    lambda n, v: f'variable "x" {{}}\n{n.lower()} = "{v}"\n',
    lambda n, v: f"docker run -e {n}={v} app:1.2",
    lambda n, v: f"ENV {n}={v}",
    lambda n, v: f"2025-11-02T10:11:12Z INFO  loaded {n}={v} from env",
    lambda n, v: f"{_ESC}[32m{n}{_ESC}[0m={_ESC}[33m{v}{_ESC}[0m",
    lambda n, v: f"\\u001b[1m{n}\\u001b[0m: \\u001b[32m{v}\\u001b[0m",
    lambda n, v: f"設定の {n} は {v} です。",
    lambda n, v: f"| {n} | `{v}` |",
    lambda n, v: f"+{n}={v}\n-{n}=\n",
]
_BARE: list[Carrier] = [
    lambda _, v: v,
    lambda _, v: f"Use {v}, please.",
    lambda _, v: f"{_ESC}[32m{v}{_ESC}[0m",
    lambda _, v: f"\\u001b[32m{v}\\u001b[39m done",
    lambda _, v: f"トークンは{v}です。",
    lambda _, v: f"- `{v}`",
    lambda _, v: f"curl -H 'Authorization: Bearer {v}' https://api.example.com/v1",
    lambda _, v: f'{{"headers": {{"X-Api-Key": "{v}"}}}}',
    lambda _, v: f'["{v}"]',
    lambda _, v: f"({v})",
    lambda _, v: f"seen: {v}\nnext line",
    lambda _, v: f'{{"stdout": "line one\\n{v}\\nline three"}}',
    lambda _, v: f"a%20{v}%20b",
    lambda _, v: f"\x9b32m{v}\x9b0m",
    lambda _, v: f"[32m{v}[0m",
    lambda _, v: f"{_ESC}Pq{v}",
    lambda _, v: f"https://api.example.com/v1/items?key={quote(v, safe='')}&page=2",
]
_PASSWORD_PLACES: dict[str, Carrier] = {
    "env": lambda _, v: f"DB_PASSWORD={v}",
    "env-export": lambda _, v: f"export MYSQL_ROOT_PASSWORD={v}\nexport TZ=UTC",
    "pgpassword": lambda _, v: f"PGPASSWORD={v} psql -h db -U app",
    "env-list": lambda _, v: f"    environment:\n      - POSTGRES_PASSWORD={v}\n",
    "yaml": lambda _, v: f"database:\n  user: app\n  password: {v}\n",
    "yaml-quoted": lambda _, v: f'smtp:\n  user: app\n  password: "{v}"\n',
    "ini": lambda _, v: f"[client]\nuser = app\npassword = {v}\n",
    "properties": lambda _, v: f"spring.datasource.username=app\nspring.datasource.password={v}\n",
    "json": lambda _, v: json.dumps({"user": "app", "password": v}),
    "json-escaped": lambda _, v: json.dumps({"body": json.dumps({"user": "app", "pwd": v})}),
    "xml": lambda _, v: f"<server><username>ci</username><password>{v}</password></server>",
    "flag": lambda _, v: f"tool login --user app --password={v}",
    "flag-space": lambda _, v: f"tool login --user app --password {v} --verbose",
    "mysql": lambda _, v: f"mysql -h db -uroot -p{v} app",
    "sshpass": lambda _, v: f"sshpass -p {v} ssh root@10.0.0.5",
    "docker-login": lambda _, v: f"docker login -u ci -p {v} registry.example.com",
    "curl-user": lambda _, v: f"curl -u admin:{v} https://example.com/api",
    "ado-net": lambda _, v: f"Server=db;Database=app;Uid=app;Pwd={v};SslMode=None",
    "odbc": lambda _, v: f"Driver={{ODBC}};Server=db;User Id=app;Password={v}",
    "libpq": lambda _, v: f"host=db port=5432 user=app password={v} dbname=app",
    "netrc": lambda _, v: f"machine example.com login ci password {v}",
    "netrc-lines": lambda _, v: f"machine example.com\n  login ci\n  password {v}\n",
    "url": lambda _, v: f"https://ci:{quote(v, safe='')}@git.example.com/app.git",
    "postgres": lambda _, v: f"postgres://app:{quote(v, safe='')}@db.example.com:5432/app",
    "redis": lambda _, v: f"redis://:{quote(v, safe='')}@cache:6379/0",
    "mongodb": lambda _, v: f"mongodb+srv://app:{quote(v, safe='')}@cluster0.example.net/app?retryWrites=true",
    "amqp": lambda _, v: f"amqp://app:{quote(v, safe='')}@mq:5672/%2f",
    "jdbc": lambda _, v: f"jdbc:postgresql://db:5432/app?user=app&password={quote(v, safe='')}",
    "git-remote": lambda _, v: f"origin\thttps://ci:{quote(v, safe='')}@github.example.com/acme/shop.git (fetch)",
    "form": lambda _, v: f"grant_type=password&username=app&password={quote(v, safe='')}&scope=all",
    "go": lambda _, v: f'cfg.Password = "{v}"',
    "python": lambda _, v: f'connect(host="db", user="app", password="{v}")',
    "java": lambda _, v: f'ds.setPassword("{v}");',
    "php": lambda _, v: f"define('DB_PASSWORD', '{v}');",
    "terraform": lambda _, v: f'resource "db" "x" {{\n  username = "app"\n  password = "{v}"\n}}',
    "sql": lambda _, v: f"CREATE USER app IDENTIFIED BY '{v}';",
    "sql-role": lambda _, v: f"ALTER ROLE app WITH PASSWORD '{v}';",
    "prose": lambda _, v: f"The admin password is {v} until Friday.",
    "label": lambda _, v: f"Username: admin\nPassword: {v}\n",
    "markdown": lambda _, v: f"**Password:** `{v}`",
    "japanese": lambda _, v: f"管理者のパスワードは {v} です。",
    "japanese-label": lambda _, v: f"パスワード：{v}\n",  # noqa: RUF001
    "requirepass": lambda _, v: f"requirepass {v}\nmaxmemory 100mb",
    "kubectl": lambda _, v: f"kubectl create secret generic db --from-literal=password={v}",
    "colour": lambda _, v: f"{_ESC}[1mpassword{_ESC}[0m: {_ESC}[31m{v}{_ESC}[0m",
    "stdin": lambda _, v: f"echo {v} | docker login -u ci --password-stdin registry.example.com",
    "basic-auth": lambda _, v: f'requests.get(url, auth=("app", "{v}"))',
    "plist": lambda _, v: f"<dict><key>Password</key>\n<string>{v}</string></dict>",
    "log": lambda _, v: f'level=info msg="login" user=app password={v}',
    "graphql": lambda _, v: f'mutation {{ login(password: "{v}") {{ id }} }}',
    "helm": lambda _, v: f"helm upgrade app . --set auth.password={v} --wait",
    "docker-inspect": lambda _, v: json.dumps({"Env": ["PATH=/bin", f"DB_PASSWORD={v}"]}),
    "powershell": lambda _, v: f'$env:DB_PASSWORD = "{v}"',
    "dockerfile": lambda _, v: f"ENV DB_PASSWORD {v}",
    "words-of-a-command": lambda _, v: json.dumps(["mysqldump", "-h", "db", "--password", v, "shop"]),
    "words-of-sshpass": lambda _, v: json.dumps({"argv": ["sshpass", "-p", v, "ssh", "root@10.0.0.5"]}),
    "words-of-curl": lambda _, v: json.dumps(["curl", "-s", "-u", f"admin:{v}", "https://example.com"], indent=2),
    "name-and-value": lambda _, v: json.dumps([{"Name": "DB_PASSWORD", "Value": v}]),
    "parameter": lambda _, v: json.dumps({"ParameterKey": "DbPassword", "ParameterValue": v}),
    "list": lambda _, v: json.dumps({"passwords": [v]}),
    "object": lambda _, v: json.dumps({"password": {"value": v}}),
    "next-line": lambda _, v: f'{{"password":\n    "{v}"}}',
    "lost-colour": lambda _, v: f"[1mDB_PASSWORD[0m=[32m{v}[0m",
    "one-character-colour": lambda _, v: f"\x9b1mDB_PASSWORD\x9b0m={v}\x9b0m",
    "ldapsearch": lambda _, v: f"ldapsearch -x -D cn=admin,dc=example -w {v} -b dc=example",
    "httpie": lambda _, v: f"http -a admin:{v} https://example.com/api",
    "useradd": lambda _, v: f"useradd -m -p {v} deploy",
    "chpasswd": lambda _, v: f"echo 'deploy:{v}' | chpasswd",
    "htpasswd": lambda _, v: f"htpasswd -b /etc/nginx/users deploy {v}",
    "openssl-key": lambda _, v: f"openssl enc -aes-256-cbc -salt -k {v} -in a.tar",
    "from-literal": lambda _, v: f"kubectl create secret generic app --from-literal=conn={v}",
    "secret-set": lambda _, v: f"gh secret set DEPLOY --body {v}",
    "secrets-set": lambda _, v: f"flyctl secrets set DATABASE={v}",
    "sudo": lambda _, v: f"[sudo] password for deploy: {v}",
    "secure-string": lambda _, v: f'ConvertTo-SecureString "{v}" -AsPlainText -Force',
    "oracle": lambda _, v: f"jdbc:oracle:thin:scott/{v}@//db:1521/shop",
    "csv": lambda _, v: f"user,password,role\nbob,{v},admin\n",
    "table": lambda _, v: f"| user | password |\n|---|---|\n| bob | {v} |\n",
    "russian": lambda _, v: f"Пароль: {v}",
    "spanish": lambda _, v: f"contraseña: {v}",
    "portuguese": lambda _, v: f"DB_SENHA={v}",
    "french": lambda _, v: f"mot de passe : {v}",
    "korean": lambda _, v: f"비밀번호: {v}",
    "chinese": lambda _, v: f"密码：{v}",  # noqa: RUF001
    "japanese-passphrase": lambda _, v: f"パスフレーズ：{v}",  # noqa: RUF001
    "polish": lambda _, v: f"hasło: {v}",
    "german": lambda _, v: f"Das Kennwort lautet {v}.",
    "shell-default": lambda _, v: f"DB_PASSWORD=${{DB_PASSWORD:-{v}}}",
    "or": lambda _, v: f'const pw = process.env.DB_PASSWORD || "{v}";',
    "behind-or": lambda _, v: f"password: process.env.PW ?? '{v}',",
    "rust": lambda _, v: f'let password = String::from("{v}");',
    "r": lambda _, v: f'password <- "{v}"',
    "lisp": lambda _, v: f'(setenv "DB_PASSWORD" "{v}")',
    "wordpress": lambda _, v: f"define( 'DB_PASSWORD', '{v}' );",
    "yaml-anchor": lambda _, v: f"password: &pw {v}\n",
    "yaml-tag": lambda _, v: f"password: !!str {v}\n",
    "yaml-folded": lambda _, v: f"password: >-\n  {v}\n",
    "tsv": lambda _, v: f"user\tpassword\tmail\nbob\t{v}\tx\n",
    "psql": lambda _, v: f" user | password \n------+----------\n bob  | {v}\n(1 row)\n",
    "mysql-table": lambda _, v: (
        f"+------+-----+\n| user | password |\n+------+-----+\n| bob  | {v} |\n+------+-----+\n"
    ),
    "italic": lambda _, v: f"- *password*: `{v}`\n",
    "html-cell": lambda _, v: f"<tr><td>Password</td><td>{v}</td></tr>",
    "html-definition": lambda _, v: f"<dt>Password</dt><dd>{v}</dd>",
    "html-input": lambda _, v: f'<input type="password" name="pw" value="{v}">',
    "credentials": lambda _, v: f"credentials: admin / {v}",
    "mssql-login": lambda _, v: f"CREATE LOGIN app WITH PASSWORD = N'{v}';",
    "sql-insert": lambda _, v: f"INSERT INTO users (name, password) VALUES ('eve', 'x'), ('bob', '{v}');",  # noqa: S608
    "smbclient": lambda _, v: f"smbclient //srv/share -U 'bob%{v}'",
    "lftp": lambda _, v: f"lftp -u bob,{v} sftp://h.example.com",
    "ipmitool": lambda _, v: f"ipmitool -I lanplus -H 10.0.0.1 -U admin -P {v} power status",
    "snmp": lambda _, v: f"snmpwalk -v3 -u bob -l authPriv -A {v} 10.0.0.1",
    "proxy-user": lambda _, v: f"curl --proxy-user bob:{v} -x proxy:3128 https://example.com",
    "router": lambda _, v: f"hostname r1\nusername admin privilege 15 secret {v}\n",
    "rabbitmqctl": lambda _, v: f"rabbitmqctl change_password bob {v}",
    "put-parameter": lambda _, v: f"aws ssm put-parameter --name /prod/db/password --type SecureString --value {v}",
    "secret-string": lambda _, v: f"aws secretsmanager create-secret --name prod/db --secret-string {v}",
    "secret-create": lambda _, v: f"printf '{v}' | docker secret create db_password -",
    "secret-set-stdin": lambda _, v: f"echo {v} | gh secret set DEPLOY_KEY",
    "secret-set-b": lambda _, v: f"gh secret set DEPLOY_KEY -b'{v}'",
    "terraform-output": lambda _, v: json.dumps({"db_password": {"sensitive": True, "type": "string", "value": v}}),
}


def _rows(table: str) -> list[list[str]]:
    return [[part.strip() for part in line.split("|")] for line in table.strip().splitlines()]


def shapes(rng: random.Random) -> list[Shape]:
    """Draw every kind a few times, each time in another carrier."""
    return [*_tokens(rng), *_named(rng), *_passwords(rng), *_documents(rng), *_addresses(rng)]


def _tokens(rng: random.Random) -> list[Shape]:
    found = []
    for kind, shape, name in _rows(_TOKENS):
        for at in range(VARIANTS):
            value = fill(shape, rng)
            if kind == "jwk-private":
                text = json.dumps({"kty": "EC", "crv": "P-256", "x": fill("{url:43}", rng), "d": value})
            else:
                text = rng.choice(_ANYWHERE if at % 2 else _BARE)(name, value)
            found.append(Shape(kind, text, _as_written(value, text)))
    return found


def _as_written(value: str, text: str) -> str:
    """The value as the text spells it: a URL encodes it."""
    return value if value in text else quote(value, safe="")


def _named(rng: random.Random) -> list[Shape]:
    found = []
    for kind, shape, names in _rows(_NAMED):
        for _ in range(VARIANTS):
            value = fill(shape, rng)
            found.append(Shape(kind, rng.choice(_ANYWHERE[:-4])(rng.choice(names.split()), value), value))
    return found


def _passwords(rng: random.Random) -> list[Shape]:
    found = []
    kinds = _rows(_PASSWORDS)
    for place, carrier in _PASSWORD_PLACES.items():
        for _ in range(VARIANTS):
            kind, shape = rng.choice(kinds)
            value = fill(shape, rng)
            if not any(letter.isdigit() for letter in value):
                value = value[:-1] + rng.choice(string.digits) if kind != "password-letters" else value
            text = carrier("", value)
            found.append(Shape(f"password-in-{place}", text, _as_written(value, text)))
    return found


def _documents(rng: random.Random) -> list[Shape]:
    """Secrets that a whole document explains."""
    found = []
    for _ in range(VARIANTS):
        for kind, make in _DOCUMENTS.items():
            value, text = make(rng)
            found.append(Shape(kind, text, value))
    return found


Document = Callable[[random.Random], tuple[str, str]]


def _of(shape: str, text: str) -> Document:
    """A document of a template with one value."""

    def make(rng: random.Random) -> tuple[str, str]:
        value = fill(shape, rng)
        return value, text.replace("VALUE", value)

    return make


def _pem(kind: str) -> Document:
    def make(rng: random.Random) -> tuple[str, str]:
        lines = "\n".join(fill("{b64:64}", rng) for _ in range(8))
        return lines, f"-----BEGIN {kind}PRIVATE KEY-----\n{lines}\n-----END {kind}PRIVATE KEY-----\n"

    return make


def _pem_in_json(rng: random.Random) -> tuple[str, str]:
    value, text = _pem("")(rng)
    document = {"type": "service_account", "private_key": text, "client_id": "1"}
    return value.replace("\n", "\\n"), json.dumps(document)


def _basic(rng: random.Random) -> tuple[str, str]:
    value = base64.b64encode(fill("app:{62:12}", rng).encode()).decode()
    return value, f"GET / HTTP/1.1\r\nAuthorization: Basic {value}\r\n\r\n"


def _docker_config(rng: random.Random) -> tuple[str, str]:
    value = base64.b64encode(fill("ci:{62:16}", rng).encode()).decode()
    return value, json.dumps({"auths": {"registry.example.com": {"auth": value}}}, indent=2)


def _aws_csv(rng: random.Random) -> tuple[str, str]:
    value = fill("{b64:40}", rng)
    return value, fill("Access key ID,Secret access key\nAKIA{b32:16},", rng) + value + "\n"


def _secret_json(rng: random.Random) -> tuple[str, str]:
    value = base64.b64encode(fill("{62:15}", rng).encode()).decode()
    document = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "db"}, "data": {"connection": value}}
    return value, json.dumps(document, indent=rng.choice([None, 2]))


def _secret_yaml(rng: random.Random) -> tuple[str, str]:
    value = base64.b64encode(fill("{62:15}", rng).encode()).decode()
    return value, f"apiVersion: v1\nkind: Secret\nmetadata:\n  name: db\ndata:\n  connection: {value}\n"


_DOCUMENTS: dict[str, Document] = {
    "pem-rsa": _pem("RSA "),
    "pem-pkcs8": _pem(""),
    "pem-openssh": _pem("OPENSSH "),
    "pem-in-json": _pem_in_json,
    "basic-auth": _basic,
    "docker-config": _docker_config,
    "kubernetes-secret-json": _secret_json,
    "kubernetes-secret-yaml": _secret_yaml,
    "gcloud-credentials": _of(
        "1//0{url:90}", '{"client_id":"764086051850.apps","refresh_token":"VALUE","type":"authorized_user"}'
    ),
    "azure-sas": _of(
        "{62:20}%2B{62:21}%3D",
        "https://acct.blob.core.windows.net/c/f.txt?sv=2023-11-03&sr=b&se=2026-01-01T00%3A00%3A00Z&sp=r&sig=VALUE",
    ),
    "azure-connection": _of(
        "{b64:86}==",
        "DefaultEndpointsProtocol=https;AccountName=acct;AccountKey=VALUE;EndpointSuffix=core.windows.net",
    ),
    "service-bus": _of(
        "{b64:43}=",
        "Endpoint=sb://acme.servicebus.windows.net/;SharedAccessKeyName=Root;SharedAccessKey=VALUE",
    ),
    "logic-app": _of(
        "{url:43}",
        "https://prod-1.westeurope.logic.azure.com/workflows/a/triggers/manual/paths/invoke?sp=%2F&sig=VALUE",
    ),
    "s3-presigned": _of(
        "{hex:64}",
        "https://b.s3.amazonaws.com/k?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Expires=60&X-Amz-Signature=VALUE",
    ),
    "cookie-django": _of("{low:32}", "Cookie: csrf=1; sessionid=VALUE; theme=dark"),
    "cookie-set": _of("{url:40}", "Set-Cookie: session=VALUE; Path=/; HttpOnly; Secure"),
    "cookie-php": _of("{low:26}", "GET /admin HTTP/1.1\r\nCookie: PHPSESSID=VALUE\r\n"),
    "cookie-express": _of("s%3A{url:32}.{62:40}", "curl -b 'connect.sid=VALUE' https://example.com"),
    "cookie-java": _of("{HEX:32}", "Cookie: JSESSIONID=VALUE"),
    "cookie-json": _of("{62:48}", '{"url": "https://example.com", "cookie": "lang=en; user_session=VALUE; tz=UTC"}'),
    "slack-webhook": _of("{62:24}", "https://hooks.slack.com/services/T0AB12CD3/B0AB12CD3/VALUE"),
    "discord-webhook": _of("{url:68}", "https://discord.com/api/webhooks/1234567890123456789/VALUE"),
    "teams-webhook": _of(
        "{hex:32}/{hex:8}-{hex:4}-{hex:4}-{hex:4}-{hex:12}",
        "https://acme.webhook.office.com/webhookb2/1b2c3d4e-aaaa-bbbb-cccc-1b2c3d4e5f60@1b2c3d4e-aaaa-bbbb-cccc-1b2c3d4e"
        "5f60/IncomingWebhook/VALUE",
    ),
    "npmrc": _of("{b64:40}", "//registry.example.com/:_authToken=VALUE"),
    "npmrc-auth": _of("{b64:31}=", "//registry.example.com/:_auth=VALUE"),
    "pypirc": _of("pypi-AgEIcHlwaS5vcmc{url:120}", "[pypi]\nusername = __token__\npassword = VALUE\n"),
    "git-credentials": _of("{62:40}", "https://ci:VALUE@git.example.com"),
    "kubeconfig": _of("LS0tLS1CRUdJTiBSU0EgUFJJVkFURSBLRVkt{b64:200}", "users:\n- user:\n    client-key-data: VALUE\n"),
    "aws-credentials-csv": _aws_csv,
    "sts-xml": _of("{b64:40}", "<Credentials><SecretAccessKey>VALUE</SecretAccessKey></Credentials>"),
    "sentry-dsn": _of("{hex:32}", "SENTRY_DSN=https://VALUE@o1.ingest.sentry.io/42"),
    "har-header": _of("{62:40}", '{"headers": [{"name": "Authorization", "value": "Bearer VALUE"}]}'),
    "grep-colour": _of("{62:30}", f"app.env:{_ESC}[01;31m{_ESC}[KAPI_TOKEN{_ESC}[m{_ESC}[K=VALUE"),
    "grep-inside": _of("{62:32}", f"app.env:TOKEN={_ESC}[01;31m{_ESC}[Kghp_{_ESC}[m{_ESC}[KVALUE"),
    "signed-cookie-header": _of("{62:40}", "cookie: __Secure-next-auth.session-token=VALUE; x=1"),
    "gradle": _of("{62:20}", "signing.password=VALUE\nsigning.keyId=24875D73\n"),
    "ansible": _of("{62:14}", "host1 ansible_user=root ansible_ssh_pass=VALUE\n"),
    "redis-cli": _of("{62:16}", "redis-cli -h cache -a VALUE ping"),
    "pgpass": _of("{62:20}", "db.example.com:5432:app:app:VALUE\n"),
    "key-in-prose": _of("{62:32}", "My API key is VALUE, please rotate it."),
    "key-in-japanese": _of("{62:32}", "APIキーは VALUE です。"),
    "honeycomb-header": _of("{hex:32}", "x-honeycomb-team: VALUE"),
    "cookie-flask": _of(".eJ{url:60}.{url:6}.{url:27}", "Set-Cookie: session=VALUE; HttpOnly; Path=/"),
    "vault-old": _of("s.{62:24}", "VAULT_TOKEN=VALUE"),
    "django-key": _of("{django:50}", "SECRET_KEY = 'django-insecure-VALUE'"),
    "putty": _of(
        "{b64:48}", "PuTTY-User-Key-File-3: ssh-ed25519\nComment: a\nPrivate-Lines: 1\nVALUE\nPrivate-MAC: 0\n"
    ),
    "pem-grep": _of("{b64:64}", "id_rsa:1:-----BEGIN RSA PRIVATE KEY-----\nid_rsa:2:VALUE\n"),
    "pem-cut": _of("{b64:64}\n{b64:64}", "VALUE\nAbCd==\n-----END RSA PRIVATE KEY-----\n"),
    "oauth-response": _of("{url:64}", '{"access_token":"VALUE","token_type":"Bearer","expires_in":3600}'),
}

_PEOPLE = ["taro.yamada", "jane_doe+test", "a.b-c", "山田太郎", "李雷", "marie.dupré", "o.connor99"]
_HOSTS = ["example.com", "mail.example.co.jp", "例え.jp", "sub.example.museum", "münchen.example.de", "xn--r8jz45g.jp"]
_LETTERS = ["Write to {} today.", "<{}>", '"email": "{}"', "連絡先は {} まで", "mailto:{}?subject=x", "- {}\n", "{}"]


def _addresses(rng: random.Random) -> list[Shape]:
    found = []
    for person in _PEOPLE:
        for host in _HOSTS:
            address = f"{person}@{host}"
            found.append(Shape("mail-address", rng.choice(_LETTERS).format(address), address))
    return found
