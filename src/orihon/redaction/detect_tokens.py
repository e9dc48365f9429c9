"""Find tokens that are recognisable on their own, and values that a provider's notation explains.

Most tokens have a fixed beginning and a body; `_TABLE` lists them. Others have a characteristic shape, a signature
inside, or stand behind a name that only one provider uses. The module does
not look for names such as `password`.
"""

from __future__ import annotations

import re
from functools import cache
from typing import NamedTuple

from orihon.redaction.entropy import is_placeholder, is_random, is_token_body, is_uuid
from orihon.redaction.escapes import ESCAPE_SIGNS, find_word_starts, skip_escape

Span = tuple[int, int, bytes]  # start, end, mask

# One line is one shape: the mask, the body (a regular expression over UTF-8 bytes), and the beginnings. After the mask,
# `!` accepts even a row of x, and `^` requires the token to stand alone, because its beginning is also the end of
# ordinary words. Bodies are as short as a real token can be, and rarely have an exact length or alphabet, so that a
# token is still recognised after its provider changes the format.
_TABLE = r"""
GITHUB_TOKEN  \w{12,}(?:[\w-]*\.[\w-]+){0,2}  ghp_ gho_ ghu_ ghs_ ghr_
GITHUB_TOKEN  \w{12,}                         github_pat_
GITLAB_TOKEN  [\w-]{12,}(?:\.[\w-]+)*         glpat- gldt- glrt- glrtr- glft- glptt- glcbt- glimt- glagent- gloas-
GITLAB_TOKEN  [\w-]{12,}(?:\.[\w-]+)*         glsoat- glffct- glwt- GR1348941
ANTHROPIC_KEY [\w-]{12,}                      sk-ant-
API_KEY       [\w+/=-]{24,}                   sk-let-
TOKEN         [\w.-]{30,}                     hf_oauth_ hf_jwt_
OPENAI_KEY^   (?=(?:[A-Za-z0-9]*[_-]){0,12}[A-Za-z]*\d)[\w-]{16,} sk- sess-
AWS_KEY       (?![A-Z0-9]*EXAMPLE)[A-Z0-9]{16} AKIA ASIA ABIA ACCA
AWS_KEY!      [A-Za-z0-9+/]{80,}=*            ABSKQmVkcm9ja0FQSUtleS1
AWS_KEY       [\w+/=:-]{20,}                  bedrock-api-key- amzn.mws. IQoJb3JpZ2lu FwoGZXIvYXdz FQoGZXIvYXdz aoaAAAAA
GOOGLE_KEY    [\w-]{35}                       AIza
GOOGLE_KEY    [\w./-]{20,}                    ya29. GOCSPX- GOOG1E AQ.Ab8 ya29.a0
GOOGLE_KEY    [\w-]{30,}                      1//0 4/0A
SLACK_TOKEN   (?=[\w%.-]*\d)[\w%.+/=-]{10,}   xoxa- xoxb- xoxc- xoxd- xoxe- xoxo- xoxp- xoxr- xoxs- xapp- xwfp-
SLACK_TOKEN   (?=[\w%.-]*\d)[\w%.+/=-]{10,}   xoxe.xoxb- xoxe.xoxp-
STRIPE_KEY    [\w=-]{10,}                     sk_live_ sk_test_ sk_prod_
STRIPE_KEY    [\w+/=]{10,}                    rk_live_ rk_test_ rk_prod_ whsec_
PRIVATE_KEY   [A-Z0-9]{40,}                   AGE-SECRET-KEY-1
PRIVATE_KEY   [A-Za-z0-9+/]{24,}={0,2}        LS0tLS1CRUdJTiBSU0EgUFJJVkFURS LS0tLS1CRUdJTiBQUklWQVRF
PRIVATE_KEY   [A-Za-z0-9+/]{24,}={0,2}        LS0tLS1CRUdJTiBFQyBQUklWQVRF LS0tLS1CRUdJTiBPUEVOU1NI
PRIVATE_KEY   [A-Za-z0-9+/]{24,}={0,2}        LS0tLS1CRUdJTiBFTkNSWVBURUQgUFJJVkFURS
JWT           [\w-]{8,}={0,2}\.[\w-]{8,}={0,2}(?:\.[\w-]*={0,2}){0,3} eyJ eyA ewo ew0 ZXlK
TOKEN         [\w-]{8,}(?:\.[\w-]{5,8}\.|:[\w-]{5,8}:)[\w-]{20,} eyJ
JWT           [A-Za-z0-9+/_-]{60,}={0,2}      ZXlK
TOKEN         [\w./+=-]{20,}                  eyJrIjoi ops_eyJ sk.eyJ pk.eyJ p.eyJ dG9rOg
TOKEN         [\w-]{30,}                      npm_ pypi-AgE hf_ dop_v1_ doo_v1_ dor_v1_ dos_v1_ shpat_ shpca_ shppa_
TOKEN         [\w-]{30,}                      shpss_ shpua_ lin_api_ lin_oauth_ ntn_ rubygems_ sntryu_ sntrya_ sntryi_
TOKEN         [\w-]{30,}                      pul- bkua_ bkaa_ bkaj_ bkar_ bkct_ bkcq_ bkps_ bkpt_ bkpr_ bkrt_ bkpw_
TOKEN         [\w-]{30,}                      shippo_live_ shippo_test_ figd_ figo_ figu_ figs_ figor_ pnu_ pnb_ nfp_
TOKEN         [\w-]{30,}                      nfc_ nfo_ nfu_ sbp_ sbat_ mlsn. ghv_ polar_ rootly_ samsara_api_
TOKEN         [A-Za-z]{30,}                   api_org_
TOKEN!        [A-Za-z]{34}                    hf_
TOKEN         [\w-]{20,}                      dckr_pat_ dckr_oat_ sq0atp- sq0csp- sq0idp- hvs. hvb. hvr. mfp_ vcp_ vca_
TOKEN         [\w-]{20,}                      vck_ vci_ vcr_ vcs_ ddp_ ddo_ lip_ lio_ ddpat_ ddsat_ ddapp_
TOKEN         [\w-]{56,}                      EAAA EAAC EAAM EAAG EAAB EAAD EAAE EAAJ vk1.a. IGQV IGAA
TOKEN         [\w=.-]{60,}                    SG.
TOKEN^        [A-Za-z0-9]{43}                 secret_
TOKEN         [\w=.+/-]{30,}                  sgp_ sgph_ sntrys_ sgd_ slk_ glc_ glsa_ dbtc_ dbtu_ dbts_ dbtp_ wrkaus-
TOKEN         [\w=.+/-]{30,}                  wrkeu- wrkus- wrkjp- wrksg- wrkatrial-
TOKEN         [\w=.-]{16,}                    sm_aat_ sm_pat_ sm_sat_ HRKU- dnkey- rdme_ tskey- pscale_tkn_
TOKEN         [\w=.-]{16,}                    pscale_oauth_ pscale_pw_ CFPAT- tfp_ fio-u- tk-us- ENDR+ ovsxp_ waka_
TOKEN         [\w=-]{24,}                     duffel_live_ duffel_test_ ATATT3 ATCTT3 ATBB ATSTT3 ATTA ATOA pina_ pinr_
TOKEN         [\w=-]{24,}                     rca_ rcr_ pts_ pdus+ tss_ vtwn_ ctp_ obu_ isat_ chk_eyJ
TOKEN         [\w+/=,-]{40,}                  fo1_ fm1a_ fm1r_ fm2_
TOKEN^        [0-9a-fA-F]{32}(?:-\d)?         dapi dose dkea dsapi
TOKEN         [\w.-]{20,}                     dp.pt. dp.ct. dp.st. dp.sa. dp.scim. dp.audit. dt0c01. dt0s16. dt0s01.
TOKEN         [\w.-]{20,}                     ory_at_ ory_rt_ ory_ac_ ory_st_ secret-token: ory_pat_ ory_apikey_
TOKEN         [\w.-]{20,}                     snyk_uat. snyk_sat. IST.eyJ
TOKEN^        [\w-]{22}\.[\w-]{24}\.\w{20}    pat. sat.
TOKEN^        [A-Za-z0-9]{14}\.[0-9a-f]{64}   pat
TOKEN^        [0-9a-f]{8}-[0-9a-f-]{27,}      pat-na1- pat-na2- pat-eu1- pat-ap1-
TOKEN^        (?:[a-z]+-)?[0-9a-f]{8}-[0-9a-f-]{27,} access-
TOKEN         [A-Za-z0-9+/@_-]{40,50}         BBDC-
TOKEN         [\w-]{40,}                      sha256~ y0_ y1_ y2_ y3_ y0__ cfat_ cfut_ cfk_ v1.0- s-s4t2ud- s-s4t2af-
TOKEN^        [\w-]+={0,2}\.[\w-]{60,}={0,2}  t1.
TOKEN^        [0-9a-f]{24}\.[0-9a-f]{32}\.[0-9a-f]{32} st.
TOKEN^        [\w=.-]{100,}                   sl.
TOKEN         [\w:-]{30,}                     CCIPAT_ CCIPRJ_ CCIRIT_ CCIBOT_
TOKEN         [\w:+/-]{30,}                   AstraCS: SWMTKN-1- SWMKEY-1-
TOKEN^        [A-Za-z0-9]{32}                 cio
TOKEN^        \w{5,30}\.\w{4,6}\.acc[_-][\w-]{10,32}\.[\w+/=-]{30,} sc_ ext_ scauth_ authress_
TOKEN         [\w-]{24,}                      xaat- xapt- dtn_ nbp_ jsrp_ jsrt_ jsrd_ packagist_ ucat_
TOKEN^        [\w=-]{24,}                     ion_ hex_
TOKEN         [\w=.-]{30,}                    hop_ bearer_ ptk_ lmb_ fgk_ gcntfy-
TOKEN         [\w.=+/-]{16,}                  WPL_AP0. WPL_AP1.
TOKEN         [\w%]{60,}                      AAAAAAAAAAAAAAAAAAAAA
TOKEN         [0-9a-z]{8,}\$[0-9a-f]{32}      access_token$production$ access_token$sandbox$
TOKEN         \d{15,17}(?:/\d{15,17})?:[0-9a-f]{32} 2/ 1/
API_KEY       [\w-]{30,}                      CLOJARS_ p8e- squ_ sqp_ sqa_ sqb_ sco_ lsv2_pt_ lsv2_sk_ phx_ phs_ pha_
API_KEY       [\w-]{30,}                      phr_ pcsk_ jina_ sindri- sindri_ APP_USR-
API_KEY       [0-9a-f]{40,}-\w{12,}           xkeysib- xsmtpsib-
API_KEY       [A-Za-z0-9]{55,}                AKCp cmVmd
API_KEY!^     [a-z0-9]{10,}                   AKC AP2 AP3 AP5 AP6 APA APB
API_KEY^      [A-Za-z0-9]{12,26}              LTAI
API_KEY^      [A-Za-z0-9]{20,60}              AKID AKLT ALTAK ALTAK-
API_KEY       [A-Za-z0-9]{16,}/[0-9a-f]{32,}  bce-v3/ALTAK-
API_KEY^      [A-Z0-9]{17}                    SCW
API_KEY^      [A-Z0-9]{16}                    DO00 DO80
API_KEY^      [\w-]{30,}                      AQVN YCA YCB YCM YCN YCO YCP
API_KEY^      [0-9a-f]{8}-?[0-9a-f-]{24,}     p8e- key- pubkey- api- sdk- mob-
API_KEY^      [A-Za-z0-9]{24,}                key_ ak_ api_ apikey_ token_
API_KEY       [\w-]{12,}                      FLWSECK- FLWPUBK- FLWSECK_TEST- FLWPUBK_TEST- NRAK- NRJS- NRII- NRRA-
API_KEY       [\w-]{12,}                      NRIQ- NRBR- NRAA- rzp_live_ rzp_test_
API_KEY^      [A-Za-z0-9]{54}                 EZAK EZTK
API_KEY       [\w-]{24,}                      PMAK- PMAT- gsk_ pplx- xai- nvapi- rpa_ tvly- tgp_v1_ wandb_v1_ csk- crsr_
API_KEY       [\w-]{24,}                      sk-or-v1- os_v2_app_ os_v2_org_ cfsk_ma_ cal_live_ apikey_ sbx_apikey_
API_KEY       [\w-]{24,}                      ncp_iam_
API_KEY^      [\w-]{20,}                      pa- fc- ak- as- ws- ls- sk_ pk_ rk_ re_
API_KEY       [\w-]{20,}                      bb_live_ bb_test_ r8_ hcaik_ hcalk_ hcamk_ hcxik_ hcxlk_ hcxmk_ hcbik_
API_KEY       [\w-]{20,}                      sk_car_ luma- m0- apify_api_ dvc_server_ CCDB1_ mka_ dvc_client_
API_KEY       [\w-]{20,}                      dvc_mobile_ mdb_sa_sk_ xnd_production_ xnd_development_ pdl_live_
API_KEY       [\w-]{20,}                      pdl_sdbx_ pdl_ntfset_ ramp_sec_ ramp_tok_ ramp_id_ bxt_ Mid-server-
API_KEY       [\w-]{20,}                      SB-Mid-server- gs_appsweep_ persona_production_ persona_sandbox_
API_KEY^      (?=[\w-]*\d)[\w-]{24,30}        BSA
API_KEY       (?=[\w-]*\d)[\w-]{22,}          e2b_ fw_ rnd_ napi_ aio_ zpka_ sb_secret_ sb_publishable_ mem9_
API_KEY^      (?=[a-z]*\d)[A-Za-z0-9]{30,}    live_ test_
API_KEY       [\w.-]{24,}                     api_live. api_sandbox. api_live_
API_KEY       [\w-]{16,}                      AIK_CI_ AIK_SECRET_ AVNS_ xau_ unkey_ signkey- tr_dev_ tr_prod_ tr_stg_
API_KEY       [\w-]{16,}                      cfxk_
API_KEY       [0-9A-F]{28,}_\w{20,}           KEY0
API_KEY       [A-Za-z0-9]{20,}-[\w+/=-]{30,}  AQE
API_KEY       [A-Za-z0-9+/]{50,}              cflt
API_KEY^      [A-Za-z0-9]{32}                 ico-
API_KEY^      [A-Z0-9]{25,}                   API-
API_KEY       [A-Z0-9]{6}-(?:[A-Z0-9]{5,11}-){2,}[A-Z0-9]{5} A3-
API_KEY^      [A-Za-z0-9]{38}                 4b1d
API_KEY^      [0-9a-f]{32}                    SK AC ES_
API_KEY^      [a-z0-9]{43}                    oy2
API_KEY       [\w:=-]{40,}                    aact_prod_ aact_hmlg_
SECRET^       (?=[\w-]*\d)[A-Za-z0-9]{30,}    secret- cnvca
PRIVATE_KEY   [A-Za-z0-9]{95,}                xprv9s21ZrQH143K
PRIVATE_KEY^  [a-z0-9]{58}                    nsec1
TOKEN         [\w-]{30,}                      pylf_v1_ lin_wh_ nsct_ depot_org_ depot_project_ tpuf_ sktsec_
TOKEN         [\w.-]{30,}                     cpk_
TOKEN         [\w+/=-]{40,}                   essu_ sgamp_user_ apk_user_ A21AA
TOKEN^        (?=[a-z]*\d)[a-z0-9]{48,56}     cog_
TOKEN^        [0-9a-f]{64}                    web_ inc_ wk-1.
TOKEN^        (?=[A-Za-z]*\d)[A-Za-z0-9]{29,44} up_ ck-
API_KEY       [\w-]{24,}                      n8n_api_ llx- aph0_ esecret_ bt-st- rlc- ydc-sk- scp-live- scp-test-
API_KEY       [\w+/=-]{24,}                   sec-c-
API_KEY       (?=[a-z]*\d)[a-z0-9]{18,24}     skey_ skey_test_ skey_live_ pkey_ pkey_test_
API_KEY^      (?=[\w-]*\d)[\w-]{40,}          bu_ fk- ste-
API_KEY^      [0-9a-f]{32}                    ek_ hb_ QN_
API_KEY^      [0-9a-f]{56,64}                 cr-
API_KEY^      [0-9a-f]{15}                    chpt_
API_KEY^      (?=[\w-]*\d)(?=[a-z0-9_-]*[A-Z])[\w-]{20} ak_
API_KEY^      (?=[a-z0-9]*[A-Z])(?=[A-Za-z]*\d)[A-Za-z0-9]{24} app- dataset-
API_KEY^      [a-z0-9]{8,16}_[0-9a-f]{32}\.[A-Za-z0-9]{32} secret_
PASSWORD!^    \w+__(?:COM|ORG|NET|IO|DEV)["']?\s{0,2}[:=]\s{0,2}["']?(?P<secret>[^\s"':${]{4,}:[^\s"'${]{4,}) BUNDLE_
"""

# Shapes without a fixed beginning. Each contains a mark that ordinary runs of letters do not have next to them.
_SHAPE = re.compile(
    rb"""(?: (?P<API_KEY> [0-9a-f]{32}-us\d{1,2} ) | (?P<TOKEN>
        [\w~.-]{3}\dQ~(?!x{6})[\w~.-]{31,34}(?![\w~-])
      | (?:bot)?\d{5,16}:A[\w-]{34}
      | [MNO][\w-]{23,27}\.[\w-]{6}\.[\w-]{27,}
      | [A-Za-z0-9]{14}\.atlasv1\.(?!x{6})[\w=-]{60,}
      | \d{15,16}(?:\||%7C)[\w-]{27,40}
      | \d{1,4}\|(?=[A-Za-z]*\d)(?=[a-z0-9]*[A-Z])[A-Za-z0-9]{40,48}
      | (?:prod|dev|preview):[a-z]+-[a-z]+-\d{1,4}\|[\w+/=]{40,}
      | [0-9a-f]{32}\.(?=[a-z0-9]*[A-Z])(?=[A-Za-z]*\d)[A-Za-z0-9]{16}
      | 00D[A-Za-z0-9]{12,15}![\w.]{80,120}
      | AAAA[\w-]{7}:APA91[\w-]{100,}
      | \.eJ[\w-]{16,}(?:\.[\w-]{5,8}\.[\w-]{20,}|(?::[\w-]{5,8}){1,2}:[\w-]{20,})
    ) | (?P<WEBHOOK> https?://(?:
        hooks\.slack\.com/(?:services|workflows|triggers)/[\w/+-]{16,300}
      | [\w.-]+\.webhook\.office\.com/webhookb2/[\w/@-]{16,300}
      | (?:\w+\.)?discord(?:app)?\.com/api/webhooks/[\w/-]{16,300}
      | hooks\.zapier\.com/hooks/[\w/-]{10,300}
      | hook\.[\w.]{0,8}make\.com/[\w-]{20,300} )))(?![A-Za-z0-9])""",
    re.VERBOSE,
)
# Keys whose mark is inside a run of letters and digits, such as the signatures of Azure.
_SIGNED = re.compile(
    rb"(?:[A-Za-z0-9]{33,52}JQQJ99[A-Za-z0-9]{20,40}|[A-Za-z0-9]{76}AZDO[A-Za-z0-9]{4}|[0-9a-f]{36}NRAL"
    rb"|[\w+/-]{37,80}(?:\+A(?:St|Eh|Sb|Rm|CR|Ba|MC)|ACDb|AIoT|Az(?:Fu|Se|Ca|EG)|APIM|AAMC)[\w+/-]{5,6}={0,2}"
    rb"|[0-9a-f]{10}msh[0-9a-f]{15}p1[0-9a-f]{6}jsn[0-9a-f]{12})(?![A-Za-z0-9])"
)
_SIGNATURE = re.compile(rb"JQQJ99|AZDO|\+A[A-Z]|ACDb|AIoT|Az[A-Z]|APIM|AAMC|msh|NRAL")
# Names, in small letters, that hold a secret although none of their words says so.
_HOLDER = re.compile(
    rb"bearer|ssws|splunk|geniekey|d|.*[a-z0-9][_.-]pat|.*_gitlab_session|.*cloudflare|.*sonar[._]?login"
    rb"|.*sumo(?:logic)?[._-]?access[._-]?id|.*message_?bird\w*id|.*heroku_key|x-honeycomb-team"
    rb"|.*(?:phpsessid|jsessionid|connect\.sid|session_?cookie|(?<![\w-])sessionid|asp\.net_sessionid|laravel_session|user_session|__session)"
    rb"|x-(?:amz|goog)-signature|oauth_signature"
)
_HOLDER_ENDS = frozenset(b"rer sws unk key pat ion are gin eam sid nid ure _id rid kie".split())
_SCHEMES = frozenset((b"bearer", b"ssws", b"splunk", b"geniekey"))
# Words by which providers mark their tokens: `acme_live_…`, `acme-sk-…`. The strong ones mark hexadecimal bodies too.
# The ids of messages, calls and sessions of models begin with other words; they pair a call with its result.
_MARKED = re.compile(
    rb"(?i)(?!(?:toolu|call|msg|message|req|request|resp|response|chatcmpl|run|thread|asst|session|ses|fc|rs|ws|item|step"
    rb"|task)[_-])(?:[a-z0-9]{1,20}[_-]){0,3}?(?:(?P<strong>live|sk|rk|oauth|private|svcacct|[a-z]{0,8}(?:pat|secret|apikey"
    rb"|token))|pk|test|prod|production|sandbox|api|key|auth|admin|personal|webhook|refresh)[_-](?:v?\d{1,2}[_-])?"
    rb"(?P<body>[\w-]{20,})"
)

RUN_BYTES = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-"
NAME_BYTES = RUN_BYTES + b"."
_LETTERS = RUN_BYTES[:52] + b"_-"
SLASHES = frozenset(b"+/")
_JOINTS = frozenset(b"\\%.~|:!")  # before a run: a part of the token, or it hides where the token begins
_MARKS = frozenset(b".|%:!~")  # after a run: the middle of a token without a fixed beginning
MAX_BLOB = 48  # bytes before a run that are searched for the beginning of its base64
_MAX_COOKIE = 300  # bytes between the word "cookie" and the value
_MAX_BODY = 4096  # bytes of a body that are judged
_MAX_INNER = 16  # beginnings that are tried inside one run
_MAX_GLUE = 24  # bytes before a token in the same run: a name, not base64
_HOLDER_BYTES, _NEARBY_BYTES = 48, 200
_MIN_MARKED, _MIN_GLUED = 24, 16
_MIN_PART = 8  # bytes between two separators on average, below which a run is a name
_NAME_DIGITS = 3
_STRONG_BYTES = 4  # a beginning of this length that ends in a separator is also found inside a run
_WALLET_BYTES = 66
_BEFORE_AZURE_MARK = 4
_AROUND = b"\"'\\ \t=:`]>"
_BEFORE_HELD = frozenset(b"\"'`= \t:\\>")
_COOKIE_HEADER = re.compile(
    rb"ookies?(?:\\{0,3}[\"']?\s{0,4}[:=]|\\{0,3}[\"']\s{0,4},|\(|[ \t])\s{0,4}\\{0,3}[\"'`]?[\w.$-]{1,80}="
)
# `curl -b`, and any word about cookies before a value that has the name of a session: an object, a call, a table.
_COOKIE_BEFORE = re.compile(rb"ookie|[ \"']-b[ =\"']")
_COOKIE_NAME = re.compile(
    rb"(?P<name>[\w.$-]{1,60})(?:=|\\{0,3}[\"']\]?\s{0,4}[:=,]\s{0,4}(?:\\{0,3}[\"']value\\{0,3}[\"']\s{0,4}[:=]\s{0,4})?"
    rb"\\{0,3}[\"'])$"
)
_COOKIE_FILE = re.compile(rb"\t(?:TRUE|FALSE)\t/[^\t\n]{0,80}\t(?:TRUE|FALSE)\t\d{1,12}\t[^\t\n]{1,80}\t$")
_COOKIE_VALUE = re.compile(rb"[^\s;,\"'\\&`]{13,}")
_SESSION = re.compile(rb"(?i)(?<!publickey)(?:sess|sid$|auth|login|remember|token|jwt)")
_BEFORE_WORD = (b"login", b"auth", b"oken", b"-t", b"pypi")
_OPTION = b" --"
# Commands that take a token as their next word.
_COMMAND = re.compile(
    rb"(?:\b(?:login|auth|authtoken|add-authtoken|auth[ \t]token)|_authToken|-token[\w.]{0,20}"
    rb"|\b(?:codecov|codecovcli|doctl)\b[^\n|;&]{0,80}[ \t]-t)(?:[ \t]+--[a-z-]{1,20})?[ \t]+[\"']?$"
)
_ENDLESS = re.compile(rb"[\w-]{%d}" % _MAX_BODY)
_SEPARATOR = re.compile(rb"[_-]")
_SIGN = re.compile(rb"[^A-Za-z0-9](?=[A-Za-z0-9])")
_BASE64 = re.compile(rb"[A-Za-z0-9+/]{20}")
_DIRECTORY = re.compile(
    rb"/[a-z]{3,20}/|/[A-Z]?[a-z]{2,20}/[a-z]{1,20}/|//|(?<![A-Za-z0-9+/=])/[a-z]{1,20}/|(?:/\w){3}/"
)
_CREDENTIAL = re.compile(rb"(?=[\w.~+/=-]*\d)[\w.~+/=-]{8,}|[\w.~+/=-]{24,}")
_MIXED = re.compile(rb"(?=[\w-]*[a-z])(?=[\w-]*[A-Z])(?=[\w-]*\d)[\w-]+")
_ENCODED = re.compile(rb"(?:[\w.~+/=-]|%[0-9A-Fa-f]{2}){20,400}")
_WALLET_KEY = re.compile(rb"0x[0-9a-fA-F]{64}")
_WALLET = re.compile(rb"(?i)private|wallet|secret|signer|mnemonic")
_AWS_SECRET = re.compile(
    rb"[\s,;:|\"'/]{1,12}(?:(?i:aws|and|with|secret|access|key)[\s,;:=_-]{1,4}){0,4}"
    rb"(?P<secret>[A-Za-z0-9+/]{40})(?![A-Za-z0-9+/=])"
)
_WEB_KEY = re.compile(rb"[\"']kty\\?[\"']")


class _Rule(NamedTuple):
    """One beginning of the table."""

    mask: bytes
    start: bytes
    body: bytes
    even_filler: bool
    alone: bool

    @property
    def inner(self) -> bool:
        """Whether the token is also found behind a separator of its run. The beginnings of names are not enough."""
        return not self.alone or self.start[-1:].isalnum()

    @property
    def slash(self) -> int:
        """The bytes of the beginning up to its last slash or plus, which stand before the run of the token."""
        return max(self.start.rfind(b"/"), self.start.rfind(b"+")) + 1

    def match(self, data: bytes, at: int, end: int) -> re.Match[bytes] | None:
        """Return the match of the body of a token that begins at `at`, or None."""
        return _compile(self.body).match(data, at + len(self.start), end) if data.startswith(self.start, at) else None


@cache
def _compile(body: bytes) -> re.Pattern[bytes]:
    """Compile a body on first use. Compiling all of them takes a twentieth of a second."""
    return re.compile(rb"(?:" + body + rb")(?![A-Za-z0-9])")


RULES: list[_Rule] = []
_STARTS: dict[bytes, list[_Rule]] = {}  # by the first three bytes, so that a run costs one lookup
_TAILS: dict[bytes, list[_Rule]] = {}  # by the last four bytes: found behind other letters, as in `acme-glpat-`
_SLASHED: list[_Rule] = []
SURE_STARTS: dict[bytes, tuple[bytes, ...]] = {}  # by the first three bytes: beginnings that need no digit behind them


def _add_rule(rule: _Rule) -> None:
    RULES.append(rule)
    head = rule.start[:3]
    for key in [head] if rule.start[2:] else [rule.start + b"%x" % digit for digit in range(16)]:
        _STARTS.setdefault(key, []).append(rule)
    if rule.slash:
        _SLASHED.append(rule)
    if not rule.alone and len(rule.start) >= _STRONG_BYTES and rule.start[-1:] in b"_-":
        _TAILS.setdefault(rule.start[-_STRONG_BYTES:], []).append(rule)
    if not rule.alone or rule.even_filler or head[2:] in (b"_", b"-"):
        SURE_STARTS[head] = (*SURE_STARTS.get(head, ()), rule.start)
        for separator in (b"_", b"-"):
            SURE_STARTS.setdefault(separator + head[:2], ())
            SURE_STARTS.setdefault(separator * 2 + head[:1], ())


for _line in _TABLE.encode().split(b"\n")[1:-1]:
    _mask, _body, *_starts = _line.split()
    for _start in _starts:
        _add_rule(_Rule(_mask.rstrip(b"!^"), _start, _body, b"!" in _mask, b"^" in _mask))


def is_sure(data: bytes, start: int) -> bool:
    """Return whether a run begins as only tokens do, or so behind separators."""
    if data[start : start + 1] in (b"_", b"-"):
        start = skip_separators(data, start)
    return data.startswith(SURE_STARTS.get(data[start : start + 3], ()), start)


def find_blob_start(data: bytes, run: int) -> int:
    """Return where the base64 or the path begins of which a run is a part, at most `MAX_BLOB` bytes before it."""
    head = data[max(0, run - MAX_BLOB) : run]
    return run - len(head) + len(head.rstrip(RUN_BYTES + b"+/"))


def skip_separators(data: bytes, run: int) -> int:
    """Return where a run begins behind the separators before it: `-AKIA…` is a removed line of a diff."""
    head = data[run : run + _MIN_GLUED]
    return run + len(head) - len(head.lstrip(b"_-"))


def find_tokens(data: bytes, runs: list[tuple[int, int]]) -> list[Span]:
    """Return the tokens in and around the runs that the prefilter found."""
    spans: list[Span] = []
    done = 0
    for run, end in runs:
        if run >= done and (span := _find_token(data, run, end)):
            spans.append(span)
            done = span[1]
            if span[2] == b"AWS_KEY" and (secret := _AWS_SECRET.match(data, done)):
                spans.append((*secret.span("secret"), b"AWS_KEY"))
    return spans


def _find_token(data: bytes, run: int, end: int) -> Span | None:
    """Return the first token of a run. The first letters of the run may belong to an escape."""
    before = data[run - 1] if run else 32
    if before in ESCAPE_SIGNS:
        for start in find_word_starts(data, run):
            if span := _find_token_at(data, start, max(start, end), 32):
                return span
    return _find_token_at(data, run, end, before)


def _find_token_at(data: bytes, run: int, end: int, before: int) -> Span | None:
    """Return the token that begins at `run`. Most runs are names, so the tests are in the order of their cost."""
    begin = find_blob_start(data, run) if before in SLASHES else run
    span = _match_start(data, run) if data[run : run + 3] in _STARTS else None
    if not span and data[run] in b"_-" and (bare := skip_separators(data, run)) < end:
        span = _match_start(data, bare) or _match_shape(data, bare)
    if not span and (begin != run or before in _JOINTS):
        span = _match_joined(data, run, before) or (
            _match_start(data, skip_escape(data, begin)) if begin != run else None
        )
    if not span and end - begin >= _MIN_GLUED and not (data[begin + 8] in b"-" and data[begin + 13] in b"-"):  # a UUID
        span = _match_inside(data, begin, end)
    if not span and ((end < len(data) and data[end] in _MARKS) or b"-us" in data[end - 5 : end]):
        span = _match_shape(data, run) or _match_inner_shape(data, run, end)
    if not span and not _is_name(data[begin:end]):
        long = end - begin >= _MIN_MARKED or data[end : end + 1] in (b"+", b"/")
        span = (_match_signed(data, begin, end) if long else None) or _match_held(data, begin, end)
    return span


def _is_name(run: bytes) -> bool:
    """Return whether a run has no digit, or few of them in an identifier: `_log10_digits`."""
    digits = len(run.translate(None, _LETTERS))
    return not digits or (digits <= _NAME_DIGITS and b"_" in run and (run.islower() or run.isupper()))


def _match_start(data: bytes, start: int) -> Span | None:
    """Return the token whose beginning is in the table."""
    for rule in _STARTS.get(data[start : start + 3], ()):
        if (span := _match_rule(data, start, rule)) and not _is_in_hash(data, start):
            return span
    return None


def _match_rule(data: bytes, start: int, rule: _Rule, *, glued: bool = False) -> Span | None:
    found = rule.match(data, start, start + _MAX_BODY)
    if not found and _ENDLESS.fullmatch(data, start, start + _MAX_BODY):
        found = rule.match(data, start, len(data))
    if not found or not (rule.even_filler or is_token_body(found.group()[:_MAX_BODY], alone=rule.alone or glued)):
        return None
    if found.end() == start + _MAX_BODY:
        found = rule.match(data, start, len(data)) or found
    first, last = found.span("secret") if "secret" in found.re.groupindex else (start, found.end())
    return first, last, rule.mask


def _is_in_hash(data: bytes, start: int) -> bool:
    """Return whether `start` is inside base64 that only happens to continue like a token: a picture, a checksum."""
    if start and data[start - 1] in SLASHES and not _has_separator(data, start):
        return bool(_BASE64.match(data, max(0, start - 20), start)) and not is_in_path(data, start)
    return data[start - 7 : start] == b"sha256="


def _has_separator(data: bytes, start: int) -> bool:
    """Return whether the beginning of a token has a sign that base64 with slashes does not have."""
    return not data[start : start + 4].isalnum()


def is_in_path(data: bytes, start: int) -> bool:
    """Return whether the slash before `start` belongs to a path or a URL rather than to base64."""
    return bool(_DIRECTORY.search(data, max(0, start - MAX_BLOB), start))


def _match_joined(data: bytes, run: int, before: int) -> Span | None:
    """Return the token of which the run is a later part, or that begins behind an escape."""
    start = _find_token_start(data, run, before)
    if data[start : start + 4] == b"http":
        return _match_shape(data, start)
    if before in b"%" and (span := _match_encoded(data, run)):
        return span
    # A path, a line number or a name may stand before the token: `a.txt:12:hvs.…`.
    starts = [start, *(sign.end() for sign in _SIGN.finditer(data, start, run))]
    if before in SLASHES:
        starts += [run - rule.slash for rule in _SLASHED if data.startswith(rule.start, run - rule.slash)]
    for at in starts:
        if data[at : at + 3] in _STARTS and (span := _match_start(data, at)) and span[1] > run:
            return span
    if start == run or not _is_joint(data, start, run, before):
        return None
    azure = data.find(b"Q~", start, run) - _BEFORE_AZURE_MARK
    shapes = (_match_shape(data, at) for at in [*starts[:_MAX_INNER], *([azure] if azure >= 0 else [])])
    return next(filter(None, shapes), None)


def _is_joint(data: bytes, start: int, run: int, before: int) -> bool:
    """Return whether a shape can continue behind this joint. Most dots and colons belong to a path or a time."""
    if before in b":":
        return data[run] in b"A"
    return (
        before not in b"."
        or data[run - 8 : run - 7] == b"."
        or data[run - 8 : run] == b"atlasv1."
        or data[run : run + 2] == b"eJ"
        or b"~" in data[start:run]
    )


def _find_token_start(data: bytes, run: int, before: int) -> int:
    """Return where the token begins that contains the run: behind an escape, or before a joint."""
    if before in b"\\%":
        return skip_escape(data, run)
    if before in SLASHES:
        hook = b"hook" in data[max(0, run - 60) : run]
        return max(data.rfind(b"http", max(0, run - 160), run), 0) if hook else run
    head = data[max(0, run - 48) : run]
    if head.endswith(b"SG."):
        return run - 3
    return skip_escape(data, run - len(head) + len(head.rstrip(NAME_BYTES + b"~:|!")))


def _match_encoded(data: bytes, run: int) -> Span | None:
    """Return the percent-encoded value of which the run is a part, if its name is `sig=` or `connect.sid=`."""
    name = max(data.rfind(b"sig=", max(0, run - 60), run), data.rfind(b".sid=", max(0, run - 16), run))
    first = data.find(b"=", name) + 1 if name >= 0 else 0
    value = _ENCODED.match(data, first) if first else None
    if not value or value.end() <= run or not is_random(value.group(), min_length=20):
        return None
    return first, value.end(), b"TOKEN"


def _match_inside(data: bytes, begin: int, end: int) -> Span | None:
    """Return a token that is glued to other letters: a terminal code, an instance's own prefix, a name."""
    tried = 0
    for separator in _SEPARATOR.finditer(data, begin, end):
        at = separator.end()
        for rule in _STARTS.get(data[at : at + 3], ()) if at <= begin + _MAX_GLUE else ():
            if rule.inner and (span := _match_rule(data, at, rule, glued=rule.start[-1:] in b"_-")):
                return span
        for rule in _TAILS.get(data[at - _STRONG_BYTES : at], ()):
            start = at - len(rule.start)
            tried += 1
            apart = begin < start <= begin + _MAX_GLUE and not data[start - 1 : start].islower()
            if apart and tried <= _MAX_INNER and (span := _match_rule(data, start, rule, glued=True)):
                return span
    return None


def _match_shape(data: bytes, start: int) -> Span | None:
    shape = _SHAPE.match(data, start, start + _MAX_BODY)
    return (start, shape.end(), str(shape.lastgroup).encode()) if shape else None


def match_webhook(data: bytes, colon: int) -> Span | None:
    """Return the address of a webhook whose scheme ends at `colon`. Its parts may be too short for a run."""
    return _match_shape(data, max(data.rfind(b"http", max(0, colon - 5), colon), 0))


def _match_inner_shape(data: bytes, begin: int, end: int) -> Span | None:
    """Return a token without a fixed beginning that follows a separator of its run."""
    separators = _SEPARATOR.finditer(data, begin, min(end, begin + _MAX_GLUE))
    return next(filter(None, (_match_shape(data, separator.end()) for separator in separators)), None)


def _match_signed(data: bytes, begin: int, end: int) -> Span | None:
    """Return a key with its provider's signature inside, or with a word such as `_live_` before the random part."""
    signature = _SIGNATURE.search(data, begin, begin + 120)
    if signature and (signed := _SIGNED.match(data, begin, begin + 200)):
        return begin, signed.end(), b"API_KEY"
    if not (marked := _MARKED.match(data, begin, end)):
        return None
    body = marked["body"]
    # A hexadecimal body is often a hash, and a UUID an id.
    parts = len(_SEPARATOR.findall(body)) + 1
    plain = not marked["strong"] and (not _MIXED.fullmatch(body) or is_uuid(body) or len(body) < parts * _MIN_PART)
    return None if plain or not is_token_body(body, alone=True) else (begin, marked.end(), b"API_KEY")


def _match_held(data: bytes, begin: int, end: int) -> Span | None:
    """Return a random value behind a name that only its provider knows to be secret, or behind a scheme of HTTP."""
    if data[begin - 4 : begin] == b"sig=":
        return _match_encoded(data, end - 1)
    held = begin > 0 and data[begin - 1] in _BEFORE_HELD
    if held and (span := _match_cookie(data, begin) or _match_named(data, begin, end) or _match_word(data, begin, end)):
        return span
    if end - begin == _WALLET_BYTES and _WALLET_KEY.fullmatch(data, begin, end) and _is_near(data, begin, _WALLET):
        return begin, end, b"PRIVATE_KEY"
    return None


def _match_word(data: bytes, begin: int, end: int) -> Span | None:
    """Return a token that is a word of a command, or a cell of a file of cookies."""
    head = data[max(0, begin - _HOLDER_BYTES) : begin].rstrip(b" \t\"'")
    held = None
    if head.endswith(_BEFORE_WORD) or _OPTION in head:
        held = _COMMAND.search(data, max(0, begin - 120), begin)
    elif data[begin - 1] in b"\t":
        held = _COOKIE_FILE.search(data, max(0, begin - 240), begin)
    value = data[begin:end]
    return (begin, end, b"TOKEN") if held and is_random(value, min_length=20) and not is_uuid(value) else None


def _match_cookie(data: bytes, begin: int) -> Span | None:
    """Return a cookie that opens a session: a random value in a cookie header, or one with the name of a session."""
    low = max(data.rfind(b"\n", max(0, begin - _MAX_COOKIE), begin), begin - _MAX_COOKIE, 0)
    before = (
        _COOKIE_BEFORE.search(data, low, begin) if b"ookie" in data[low:begin] or b"-b" in data[low:begin] else None
    )
    name = _COOKIE_NAME.search(data, max(low, begin - 80), begin) if before else None
    value = _COOKIE_VALUE.match(data, begin, begin + _MAX_BODY) if name else None
    if not before or not name or not value or is_placeholder(value.group()):
        return None
    session = _SESSION.search(name["name"])
    random = is_random(value.group(), min_length=16)
    if _COOKIE_HEADER.match(data, before.start()) and data[begin - 1] in b"=":
        opens = random or (session and not value.group().isalpha())
    else:
        opens = session and random and not is_uuid(value.group())
    return (begin, value.end(), b"TOKEN") if opens else None


def _match_named(data: bytes, begin: int, end: int) -> Span | None:
    """Return a value whose name is one of `_HOLDER`."""
    head = data[max(0, begin - _HOLDER_BYTES) : begin]
    bare = head.rstrip(_AROUND)
    if bare[-3:].lower() not in _HOLDER_ENDS and bare[-1:] not in b"dD":
        return None
    start = skip_escape(data, begin - len(head) + len(bare.rstrip(NAME_BYTES)))
    name = data[start : begin - len(head) + len(bare)].lower()
    if not _HOLDER.fullmatch(name):
        return None
    value = data[begin:end]
    if name == b"sessionid" and (data[start : start + 9] != name or head[len(bare) :] != b"="):
        return None  # a cookie of Django; elsewhere it is an id
    if name == b"d":
        private = is_random(value, min_length=20) and _is_near(data, begin, _WEB_KEY)
        return (begin, end, b"PRIVATE_KEY") if private else None
    if not head[len(bare) :].strip(b" \t"):
        credential = _CREDENTIAL.match(data, begin)  # Bearer ...
        scheme = credential and name in _SCHEMES and not is_placeholder(credential.group())
        return (begin, credential.end(), b"TOKEN") if credential and scheme else None
    return (begin, end, b"API_KEY") if is_random(value, min_length=12) or is_uuid(value) else None


def _is_near(data: bytes, at: int, words: re.Pattern[bytes]) -> bool:
    return bool(words.search(data, max(0, at - _NEARBY_BYTES), at + _NEARBY_BYTES + _WALLET_BYTES))
