"""The shapes of tokens that say themselves what they are: a fixed beginning and a body.

One line is one shape: the mask, the beginnings, and what follows them (a regular expression over UTF-8 bytes). Behind
the mask, `!` accepts even a row of x, and `^` asks the token to stand alone, because its beginning is also the end of
ordinary words. A table, so that adding a provider is adding a line. Bodies are as short as a real token can be and
rarely an exact length or alphabet: a provider that changes its tokens should still be recognised.
"""

from __future__ import annotations

TABLE = r"""
GITHUB_TOKEN    ghp_ gho_ ghu_ ghs_ ghr_                 \w{12,}(?:[\w-]*\.[\w-]+){0,2}
GITHUB_TOKEN    github_pat_                              \w{12,}
GITLAB_TOKEN    glpat- gldt- glrt- glrtr- glft- glptt-   [\w-]{12,}(?:\.[\w-]+)*
GITLAB_TOKEN    glcbt- glimt- glagent- gloas- glsoat-    [\w-]{12,}(?:\.[\w-]+)*
GITLAB_TOKEN    glffct- glwt- GR1348941                  [\w-]{12,}(?:\.[\w-]+)*
ANTHROPIC_KEY   sk-ant-                                  [\w-]{12,}
OPENAI_KEY^     sk- sess-                                (?=(?:[A-Za-z0-9]*[_-]){0,12}[A-Za-z]*\d)[\w-]{16,}
AWS_KEY         AKIA ASIA ABIA ACCA                      (?![A-Z0-9]*EXAMPLE)[A-Z0-9]{16}
AWS_KEY!        ABSKQmVkcm9ja0FQSUtleS1                  [A-Za-z0-9+/]{80,}=*
AWS_KEY         bedrock-api-key- amzn.mws.               [\w+/=-]{20,}
AWS_KEY         IQoJb3JpZ2lu FwoGZXIvYXdz FQoGZXIvYXdz   [A-Za-z0-9+/]{60,}={0,2}
AWS_KEY         aoaAAAAA                                 [\w+/=:-]{40,}
GOOGLE_KEY      AIza                                     [\w-]{35}
GOOGLE_KEY      ya29. GOCSPX- GOOG1E AQ.Ab8 ya29.a0      [\w./-]{20,}
GOOGLE_KEY      1//0                                     [\w-]{30,}
GOOGLE_KEY      4/0A                                     [\w-]{40,}
SLACK_TOKEN     xoxa- xoxb- xoxc- xoxd- xoxe-            (?=[\w%.-]*\d)[\w%.+/=-]{10,}
SLACK_TOKEN     xoxo- xoxp- xoxr- xoxs- xapp- xwfp-      (?=[\w%.-]*\d)[\w%.+/=-]{10,}
SLACK_TOKEN     xoxe.xoxb- xoxe.xoxp-                    (?=[\w-]{3,}\d)[\w-]{24,}
STRIPE_KEY      sk_live_ sk_test_ sk_prod_               [\w=]{10,}
STRIPE_KEY      rk_live_ rk_test_ rk_prod_ whsec_        [\w+/=]{10,}
PRIVATE_KEY     AGE-SECRET-KEY-1                         [A-Z0-9]{40,}
PRIVATE_KEY     LS0tLS1CRUdJTiBSU0EgUFJJVkFURS           [A-Za-z0-9+/]{24,}={0,2}
PRIVATE_KEY     LS0tLS1CRUdJTiBQUklWQVRF                 [A-Za-z0-9+/]{24,}={0,2}
PRIVATE_KEY     LS0tLS1CRUdJTiBFQyBQUklWQVRF             [A-Za-z0-9+/]{24,}={0,2}
PRIVATE_KEY     LS0tLS1CRUdJTiBPUEVOU1NI                 [A-Za-z0-9+/]{24,}={0,2}
PRIVATE_KEY     LS0tLS1CRUdJTiBFTkNSWVBURUQgUFJJVkFURS   [A-Za-z0-9+/]{24,}={0,2}
JWT             eyJ eyA ewo ew0 ZXlK                     [\w-]{8,}={0,2}\.[\w-]{8,}={0,2}(?:\.[\w-]*={0,2}){0,3}
TOKEN           eyJ                                      [\w-]{8,}(?:\.[\w-]{5,8}\.|:[\w-]{5,8}:)[\w-]{20,}
JWT             ZXlK                                     [A-Za-z0-9+/_-]{60,}={0,2}
TOKEN           eyJrIjoi                                 [A-Za-z0-9+/]{40,}={0,3}
TOKEN           ops_eyJ sk.eyJ pk.eyJ p.eyJ dG9rOg       [\w./+=-]{20,}
TOKEN           npm_ pypi-AgE hf_                        [\w-]{30,}
TOKEN           api_org_                                 [A-Za-z]{30,}
TOKEN           dckr_pat_ dckr_oat_                      [\w-]{20,}
TOKEN           dop_v1_ doo_v1_ dor_v1_ dos_v1_          [0-9a-zA-Z]{32,}
TOKEN           shpat_ shpca_ shppa_ shpss_ shpua_       (?=\w*\d)[0-9a-zA-Z]{32,}
TOKEN           sq0atp- sq0csp- sq0idp-                  [\w-]{20,}
TOKEN           EAAA EAAC EAAM EAAG EAAB EAAD EAAE EAAJ  [\w-]{56,}
TOKEN           SG.                                      [\w=.-]{60,}
TOKEN           hvs. hvb. hvr.                           [\w-]{20,}
TOKEN           lin_api_ lin_oauth_ ntn_                 [A-Za-z0-9]{30,}
TOKEN^          secret_                                  [A-Za-z0-9]{43}
TOKEN           rubygems_ sntryu_ sntrya_ sntryi_ pul-   [0-9a-zA-Z_]{32,}
TOKEN           bkua_ bkaa_ bkaj_ bkar_ bkct_ bkcq_      [0-9a-zA-Z_]{32,}
TOKEN           bkps_ bkpt_ bkpr_ bkrt_ bkpw_            [0-9a-zA-Z_]{32,}
TOKEN           sgp_ sgph_ sntrys_ sgd_ slk_             [\w+/=-]{32,}
TOKEN           sm_aat_ sm_pat_ sm_sat_                  [A-Za-z0-9]{16}
TOKEN           shippo_live_ shippo_test_                [0-9a-zA-Z]{32,}
TOKEN           duffel_live_ duffel_test_                [\w=-]{40,}
TOKEN           fo1_ fm1a_ fm1r_ fm2_                    [\w+/=,-]{40,}
TOKEN           glc_ glsa_                               (?=[\w+/]*\d)(?=[\w+/]*[a-z])[\w+/=]{32,}
TOKEN           HRKU- dnkey- rdme_ tskey- pscale_tkn_    [\w=.-]{16,}
TOKEN           pscale_oauth_ pscale_pw_ CFPAT-          [\w=.-]{20,}
TOKEN^          dapi dose dkea dsapi                     [0-9a-fA-F]{32}(?:-\d)?
TOKEN           dp.pt. dp.ct. dp.st. dp.sa. dp.scim.     [\w.-]{20,}
TOKEN           dp.audit. dt0c01. dt0s16. dt0s01.        [\w.-]{20,}
TOKEN           figd_ figo_ figu_ figs_ figor_ pnu_      [\w-]{30,}
TOKEN           pnb_ nfp_ nfc_ nfo_ nfu_ sbp_ sbat_      [\w-]{30,}
TOKEN^          pat. sat.                                [\w-]{22}\.[\w-]{24}\.\w{20}
TOKEN^          pat                                      [A-Za-z0-9]{14}\.[0-9a-f]{64}
TOKEN^          pat-na1- pat-na2- pat-eu1- pat-ap1-      [0-9a-f]{8}-[0-9a-f-]{27,}
TOKEN^          access-                                  (?:[a-z]+-)?[0-9a-f]{8}-[0-9a-f-]{27,}
TOKEN           ATATT3 ATCTT3 ATBB ATSTT3 ATTA ATOA      [\w=-]{24,}
TOKEN           BBDC-                                    [A-Za-z0-9+/@_-]{40,50}
TOKEN           sha256~                                  [\w-]{40,}
TOKEN^          t1.                                      [\w-]+={0,2}\.[\w-]{60,}={0,2}
TOKEN^          st.                                      [0-9a-f]{24}\.[0-9a-f]{32}\.[0-9a-f]{32}
TOKEN^          sl.                                      [\w=.-]{100,}
TOKEN           y0_ y1_ y2_ y3_ y0__                     [\w-]{40,}
TOKEN           CCIPAT_ CCIPRJ_ CCIRIT_ CCIBOT_          [\w:-]{30,}
TOKEN           AstraCS: SWMTKN-1- SWMKEY-1-             [\w:+/-]{30,}
TOKEN           tfp_ fio-u- tk-us- ENDR+ ovsxp_ waka_    [\w=.-]{20,}
TOKEN           mfp_ vcp_ vca_ vck_ vci_ vcr_ vcs_ ddp_  [A-Za-z0-9]{20,}
TOKEN           ddo_ lip_ lio_ ddpat_ ddsat_ ddapp_      [A-Za-z0-9_]{20,}
TOKEN^          cio                                      [A-Za-z0-9]{32}
TOKEN           cfat_ cfut_ cfk_ v1.0-                   [\w-]{40,}
TOKEN           s-s4t2ud- s-s4t2af-                      [0-9a-f]{64}
TOKEN^          sc_ ext_ scauth_ authress_               [\w]{5,30}\.\w{4,6}\.acc[_-][\w-]{10,32}\.[\w+/=-]{30,}
TOKEN           mlsn. ghv_ polar_ rootly_ samsara_api_   [\w-]{30,}
TOKEN           xaat- xapt- dtn_ nbp_                    [\w-]{24,}
TOKEN           dbtc_ dbtu_ dbts_ dbtp_ wrkaus- wrkeu-   [\w+/=-]{30,}
TOKEN           wrkus- wrkjp- wrksg- wrkatrial-          [\w=.+/-]{30,}
TOKEN           pina_ pinr_ rca_ rcr_ pts_ pdus+ tss_    [\w=-]{24,}
TOKEN           vtwn_ ctp_ obu_ isat_ chk_eyJ            [\w=-]{24,}
TOKEN^          ion_ hex_                                [\w=-]{24,}
TOKEN           hop_ bearer_ ptk_ lmb_ fgk_ gcntfy-      [\w=.-]{30,}
TOKEN           ory_at_ ory_rt_ ory_ac_ ory_st_          [\w.-]{30,}
TOKEN           secret-token:                            [\w.-]{20,}
TOKEN           ory_pat_ ory_apikey_                     [\w.-]{24,}
TOKEN           WPL_AP0. WPL_AP1.                        [\w.=+/-]{16,}
TOKEN           vk1.a.                                   [\w-]{60,}
TOKEN           IGQV IGAA                                [\w-]{60,}
TOKEN           AAAAAAAAAAAAAAAAAAAAA                    [\w%]{60,}
TOKEN           access_token$production$                 [0-9a-z]{8,}\$[0-9a-f]{32}
TOKEN           access_token$sandbox$                    [0-9a-z]{8,}\$[0-9a-f]{32}
TOKEN           jsrp_ jsrt_ jsrd_ packagist_ ucat_       [0-9A-Za-z_]{24,}
TOKEN           snyk_uat. snyk_sat. IST.eyJ              [\w.-]{24,}
TOKEN           2/ 1/                                    \d{15,17}(?:/\d{15,17})?:[0-9a-f]{32}
API_KEY         CLOJARS_                                 [A-Za-z0-9]{40,}
API_KEY         xkeysib- xsmtpsib-                       [0-9a-f]{40,}-\w{12,}
API_KEY         AKCp                                     [A-Za-z0-9]{60,}
API_KEY         cmVmd                                    [A-Za-z0-9]{55,}
API_KEY!^       AKC AP2 AP3 AP5 AP6 APA APB              [a-z0-9]{10,}
API_KEY^        LTAI                                     [A-Za-z0-9]{12,26}
API_KEY^        AKID AKLT ALTAK ALTAK-                   [A-Za-z0-9]{20,60}
API_KEY         bce-v3/ALTAK-                            [A-Za-z0-9]{16,}/[0-9a-f]{32,}
API_KEY^        SCW                                      [A-Z0-9]{17}
API_KEY^        DO00 DO80                                [A-Z0-9]{16}
API_KEY^        AQVN YCA YCB YCM YCN YCO YCP             [\w-]{30,}
API_KEY^        p8e- key- pubkey- api- sdk- mob-         [0-9a-f]{8}-?[0-9a-f-]{24,}
API_KEY         p8e-                                     [\w-]{30,}
API_KEY^        key_ ak_ api_ apikey_ token_             [A-Za-z0-9]{24,}
API_KEY         FLWSECK- FLWPUBK- FLWSECK_TEST-          [0-9a-fA-F]{12,}(?:-X)?
API_KEY         FLWPUBK_TEST- NRAK- NRJS- NRII- NRRA-    [\w-]{12,}
API_KEY         NRIQ- NRBR- NRAA-                        [\w-]{12,}
API_KEY^        EZAK EZTK                                [A-Za-z0-9]{54}
API_KEY         PMAK- PMAT-                              [0-9a-zA-Z]{24,}(?:-[0-9a-f]{20,})?
API_KEY         gsk_ pplx- xai- nvapi- rpa_ tvly-        [\w-]{24,}
API_KEY         tgp_v1_ wandb_v1_ csk- crsr_ sk-or-v1-   [\w-]{24,}
API_KEY^        pa- fc- ak- as- ws- ls- sk_ pk_ rk_ re_  [\w-]{20,}
API_KEY         bb_live_ bb_test_ r8_ hcaik_ hcalk_      [\w-]{20,}
API_KEY         hcamk_ hcxik_ hcxlk_ hcxmk_ hcbik_       [\w-]{20,}
API_KEY         squ_ sqp_ sqa_ sqb_ sco_                 [0-9a-zA-Z]{32,}
API_KEY         sk_car_ luma- m0-                        [\w-]{20,}
API_KEY^        BSA                                      (?=[\w-]*\d)[\w-]{24,30}
API_KEY         lsv2_pt_ lsv2_sk_ phx_ phs_ pha_ phr_    [\w-]{30,}
API_KEY         pcsk_ jina_ sindri- sindri_              [\w-]{30,}
API_KEY         e2b_ fw_ rnd_ napi_ aio_ zpka_           (?=\w*\d)[\w-]{22,}
API_KEY         sb_secret_ sb_publishable_ mem9_         (?=[\w-]*\d)[\w-]{22,}
API_KEY^        live_ test_                              (?=[a-z]*\d)[A-Za-z0-9]{30,}
API_KEY         api_live. api_sandbox. api_live_         [\w.-]{24,}
API_KEY         rzp_live_ rzp_test_                      [A-Za-z0-9]{14,}
API_KEY         apify_api_ dvc_server_ CCDB1_ mka_       [\w-]{20,}
API_KEY         dvc_client_ dvc_mobile_ mdb_sa_sk_       [\w-]{20,}
API_KEY         xnd_production_ xnd_development_         [\w-]{20,}
API_KEY         pdl_live_ pdl_sdbx_ pdl_ntfset_          [\w-]{20,}
API_KEY         os_v2_app_ os_v2_org_ cfsk_ma_ cal_live_ [\w-]{24,}
API_KEY         AIK_CI_ AIK_SECRET_ AVNS_ xau_ unkey_    [\w-]{16,}
API_KEY         signkey- tr_dev_ tr_prod_ tr_stg_ cfxk_  [\w-]{16,}
API_KEY         ramp_sec_ ramp_tok_ ramp_id_ bxt_        [\w-]{20,}
API_KEY         Mid-server- SB-Mid-server- gs_appsweep_  [\w-]{20,}
API_KEY         persona_production_ persona_sandbox_     [\w-]{20,}
API_KEY         apikey_ sbx_apikey_ ncp_iam_             [\w-]{24,}
API_KEY         KEY0                                     [0-9A-F]{28,}_\w{20,}
API_KEY         AQE                                      [A-Za-z0-9]{20,}-[\w+/=-]{30,}
API_KEY         cflt                                     [A-Za-z0-9+/]{50,}
API_KEY^        ico-                                     [A-Za-z0-9]{32}
API_KEY^        API-                                     [A-Z0-9]{25,}
API_KEY         A3-                                      [A-Z0-9]{6}-(?:[A-Z0-9]{5,11}-){2,}[A-Z0-9]{5}
API_KEY^        4b1d                                     [A-Za-z0-9]{38}
API_KEY^        SK AC                                    [0-9a-f]{32}
API_KEY^        oy2                                      [a-z0-9]{43}
API_KEY         APP_USR-                                 [\w-]{30,}
API_KEY^        ES_                                      [0-9a-f]{32}
API_KEY         aact_prod_ aact_hmlg_                    [\w:=-]{40,}
SECRET^         secret- cnvca                            (?=[\w-]*\d)[A-Za-z0-9]{30,}
PASSWORD!^      BUNDLE_ \w+__(?:COM|ORG|NET|IO|DEV)["']?\s{0,2}[:=]\s{0,2}["']?(?P<secret>[^\s"':${]{4,}:[^\s"'${]{4,})
"""

# Shapes without a beginning of their own. Each holds a mark that ordinary runs of letters do not touch.
SHAPES = r"""
API_KEY         [0-9a-f]{32}-us\d{1,2}
TOKEN           [\w~.-]{3}\dQ~(?!x{6})[\w~.-]{31,34}(?![\w~-])
TOKEN           (?:bot)?\d{5,16}:A[\w-]{34}
TOKEN           [MNO][\w-]{23,27}\.[\w-]{6}\.[\w-]{27,}
TOKEN           [A-Za-z0-9]{14}\.atlasv1\.(?!x{6})[\w=-]{60,}
TOKEN           \d{15,16}(?:\||%7C)[\w-]{27,40}
TOKEN           00D[A-Za-z0-9]{12,15}![\w.]{80,120}
TOKEN           AAAA[\w-]{7}:APA91[\w-]{100,}
TOKEN           \.eJ[\w-]{16,}(?:\.[\w-]{5,8}\.[\w-]{20,}|(?::[\w-]{5,8}){1,2}:[\w-]{20,})
WEBHOOK         https?://hooks\.slack\.com/(?:services|workflows|triggers)/[\w/+-]{16,300}
WEBHOOK         https?://[\w.-]+\.webhook\.office\.com/webhookb2/[\w/@-]{16,300}
WEBHOOK         https?://(?:\w+\.)?discord(?:app)?\.com/api/webhooks/[\w/-]{16,300}
WEBHOOK         https?://hooks\.zapier\.com/hooks/[\w/-]{10,300}
WEBHOOK         https?://hook\.[\w.]{0,8}make\.com/[\w-]{20,300}
"""

# What the tokens above cannot do without, as Hyperscan finds it quickly.
SHAPE_MARKS = r"""
-us\d
Q~
\d:A[\w-]{8}
[MNO][\w-]{23,27}\.[\w-]{6}\.
\.atlasv1\.
\d\|[\w-]{8}
%7C
00D[A-Za-z0-9]{12,15}!
\.eJ[\w-]{8}
:APA91
://hook
\.webhook\.office\.
/api/webhooks/
JQQJ99
AZDO
\+ASt
\+AEh
\+ASb
\+ARm
\+ACR
\+ABa
\+AMC
ACDb
AIoT
AzFu
AzSe
AzCa
AzEG
APIM
AAMC
msh[0-9a-f]{8}
NRAL
0x[0-9a-fA-F]{64}
"""

# Shapes whose marks stand inside a run of letters and digits: the signatures that Azure puts into its keys, and others.
SIGNED = r"""
API_KEY         [A-Za-z0-9]{33,52}JQQJ99[A-Za-z0-9]{20,40}
API_KEY         [A-Za-z0-9]{76}AZDO[A-Za-z0-9]{4}
API_KEY         [\w+/-]{37,80}(?:\+ASt|\+AEh|\+ASb|\+ARm|\+ACR|\+ABa|\+AMC|ACDb)[\w+/-]{5,6}={0,2}
API_KEY         [\w+/-]{37,80}(?:AIoT|AzFu|AzSe|AzCa|AzEG|APIM|AAMC)[\w+/-]{5,6}={0,2}
API_KEY         [0-9a-f]{10}msh[0-9a-f]{15}p1[0-9a-f]{6}jsn[0-9a-f]{12}
API_KEY         [0-9a-f]{36}NRAL
"""

# Names, in small letters, that hold a secret although no word in them says so: the provider's own habit.
HOLDERS = r"""
bearer|ssws|splunk|geniekey
.*[a-z0-9][_.-]pat
.*_gitlab_session|.*cloudflare|.*sonar[._]?login|.*sumo(?:logic)?[._-]?access[._-]?id|.*message_?bird\w*id|.*heroku_key
.*(?:phpsessid|jsessionid|asp\.net_sessionid|laravel_session|user_session|__session)
x-(?:amz|goog)-signature|oauth_signature
x-honeycomb-team
d
"""
# The same as Hyperscan finds it quickly, in any case.
HOLDER_MARKS = (
    "bearer ssws splunk geniekey _gitlab_session cloudflare sonarlogin sonar.login sonar_login accessid access.id "
    "access_id access-id messagebird message_bird heroku_key sessid jsessionid net_sessionid laravel_session "
    "user_session __session "
    '-signature oauth_signature sig= .sid= "d" \'d\' d\\" {d: ,d: :5432: honeycomb-team'
)
# Words by which providers mark their tokens: `acme_live_…`, `acme-sk-…`. The strong ones mark hexadecimal bodies too.
STRONG_MARKERS = r"live|sk|rk|[a-z]{0,8}(?:pat|secret|apikey|token)|oauth|private|svcacct"
MARKERS = rf"(?:{STRONG_MARKERS}|pk|test|prod|production|sandbox|api|key|auth|admin|personal|webhook|refresh)[_-]"
# What begins the ids of models' messages, calls and sessions, which pair a call with its result.
IDS = r"toolu|call|msg|message|req|request|resp|response|chatcmpl|run|thread|asst|session|ses|fc|rs|ws|item|step|task"
