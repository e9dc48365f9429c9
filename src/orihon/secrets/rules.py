"""The shapes of tokens that say themselves what they are: a fixed beginning and a body.

One line is one shape: the mask, the beginnings, and what follows them (a regular expression over UTF-8 bytes). A `!`
behind the mask: even a row of x is one. A table, so that adding a provider is adding a line. Bodies are as short as a
real token can be, rarely an exact length: a provider that lengthens its tokens should still be recognised.
"""

from __future__ import annotations

import re
from functools import cache
from typing import NamedTuple

from orihon.secrets.names import words

MASKS = words(
    "GITHUB_TOKEN GITLAB_TOKEN OPENAI_KEY ANTHROPIC_KEY AWS_KEY GOOGLE_KEY SLACK_TOKEN STRIPE_KEY "
    "PRIVATE_KEY JWT EMAIL PASSWORD TOKEN API_KEY SECRET WEBHOOK DATABASE_URL"
)
MASK = re.compile(r"\[(?:" + "|".join(sorted(MASKS)) + r")\]")

TABLE = r"""
GITHUB_TOKEN    ghp_ gho_ ghu_ ghs_ ghr_                 \w{12,}(?:[\w-]*\.[\w-]+){0,2}
GITHUB_TOKEN    github_pat_                              \w{12,}
GITLAB_TOKEN    glpat- gldt- glrt- glrtr- glft- glptt-   [\w-]{12,}(?:\.[\w-]+)*
GITLAB_TOKEN    glcbt- glimt- glagent- gloas- glsoat-    [\w-]{12,}(?:\.[\w-]+)*
GITLAB_TOKEN    glffct- glwt- GR1348941                  [\w-]{12,}(?:\.[\w-]+)*
ANTHROPIC_KEY   sk-ant-                                  [\w-]{12,}
OPENAI_KEY      sk- sess-    (?=(?:[A-Za-z0-9]*[_-])*(?=[A-Za-z]*\d)[A-Za-z0-9]{10})[\w-]{12,}
AWS_KEY         AKIA ASIA ABIA ACCA                      (?![A-Z0-9]*EXAMPLE)[A-Z0-9]{16}
AWS_KEY         ABSKQmVkcm9ja0FQSUtleS1                  [A-Za-z0-9+/]{80,}=*
AWS_KEY         bedrock-api-key- amzn.mws.               [\w+/=-]{20,}
GOOGLE_KEY      AIza                                     [\w-]{35}
GOOGLE_KEY      ya29. GOCSPX- GOOG1E AQ.Ab8              [\w./-]{20,}
SLACK_TOKEN     xoxa- xoxb- xoxc- xoxd- xoxe-            (?=[\w%.-]*\d)[\w%.+/=-]{10,}
SLACK_TOKEN     xoxo- xoxp- xoxr- xoxs- xapp- xwfp-      (?=[\w%.-]*\d)[\w%.+/=-]{10,}
SLACK_TOKEN     xoxe.xoxb- xoxe.xoxp-                    (?=[\w-]{3,}\d)[\w-]{24,}
STRIPE_KEY      sk_live_ sk_test_ sk_prod_               \w{10,}
STRIPE_KEY      rk_live_ rk_test_ rk_prod_ whsec_        [\w+/=]{10,}
PRIVATE_KEY     AGE-SECRET-KEY-1                         [A-Z0-9]{40,}
JWT             eyJ eyA ewo ew0 ZXlK                     [\w-]{8,}={0,2}\.[\w-]{8,}={0,2}(?:\.[\w-]*={0,2}){0,3}
JWT             ZXlK                                     [A-Za-z0-9+/_-]{60,}={0,2}
TOKEN           eyJrIjoi                                 [A-Za-z0-9+/]{40,}={0,3}
TOKEN           ops_eyJ sk.eyJ pk.eyJ p.eyJ dG9rOg       [\w./+=-]{20,}
TOKEN           npm_ pypi-AgE hf_ api_org_               [\w-]{30,}
TOKEN           dckr_pat_ dckr_oat_                      [\w-]{20,}
TOKEN           dop_v1_ doo_v1_ dor_v1_ dos_v1_          [0-9a-f]{32,}
TOKEN           shpat_ shpca_ shppa_ shpss_ shpua_       (?=\w*\d)[0-9a-zA-Z]{32,}
TOKEN           sq0atp- sq0csp- sq0idp-                  [\w\\-]{20,}
TOKEN           EAAA EAAC EAAM EAAG EAAB EAAD EAAE EAAJ  [\w-]{56,}
TOKEN           SG.                                      [\w=.-]{60,}
TOKEN           hvs. hvb. hvr.                           [\w-]{20,}
TOKEN           lin_api_ lin_oauth_ ntn_                 [A-Za-z0-9]{30,}
TOKEN           secret_                                  [A-Za-z0-9]{43}
TOKEN           rubygems_ sntryu_ sgp_ pul- bkua_        [0-9a-f_]{32,}
TOKEN           sgp_ sgph_ sntrys_                       [\w+/=-]{40,}
TOKEN           sm_aat_ sm_pat_ sm_sat_                  [A-Za-z0-9]{16}
TOKEN           shippo_live_ shippo_test_                [0-9a-f]{32,}
TOKEN           duffel_live_ duffel_test_                [\w=-]{40,}
TOKEN           fo1_ fm1a_ fm1r_ fm2_                    [\w+/=,-]{40,}
TOKEN           glc_ glsa_                               (?=\w*\d)(?=\w*[a-z])[\w+/=]{32,}
TOKEN           HRKU- dnkey- rdme_ tskey- pscale_tkn_    [\w=.-]{16,}
TOKEN           pscale_oauth_ pscale_pw_ CFPAT-          [\w=.-]{20,}
TOKEN           dapi                                     [0-9a-fA-F]{32}(?:-\d)?
TOKEN           dp.pt. dp.ct. dp.st. dp.sa. dp.scim.     [\w.-]{20,}
TOKEN           dp.audit. dt0c01. dt0s16. dt0s01.        [\w.-]{20,}
TOKEN           figd_ figo_ figu_ pnu_ nfp_ sbp_         [\w-]{30,}
TOKEN           pat. sat.                                [\w-]{22}\.[\w-]{24}\.\w{20}
TOKEN           pat                                      [A-Za-z0-9]{14}\.[0-9a-f]{64}
TOKEN           pat-na1- pat-eu1- access-                (?:[a-z]+-)?[0-9a-f]{8}-[0-9a-f-]{27,}
TOKEN           ATATT3 ATCTT3 ATBB ATSTT3                [\w=-]{24,}
TOKEN           sha256~                                  [\w-]{40,}
TOKEN           t1.                                      [\w-]{20,}[\w.=-]{40,}
TOKEN           sl.                                      [\w=-]{100,}
TOKEN           y0_ y1_ y2_ y3_                          [\w-]{50,}
TOKEN           CCIPAT_ CCIPRJ_ AstraCS: SWMTKN-1-       [\w:-]{30,}
TOKEN           tfp_ fio-u- tk-us- ENDR+ ovsxp_ waka_    [\w=.-]{20,}
TOKEN           mfp_ vcp_ vca_ vck_ vci_ vcr_ ddp_ lip_  [A-Za-z0-9]{20,}
TOKEN           cfat_ cfut_ cfk_ v1.0-                   [\w-]{40,}
TOKEN           s-s4t2ud- s-s4t2af-                      [0-9a-f]{64}
TOKEN           sc_ ext_ scauth_ authress_               [\w]{5,30}\.\w{4,6}\.acc[_-][\w-]{10,32}\.[\w+/=-]{30,}
TOKEN           mlsn. ghv_ polar_ rootly_ samsara_api_   [\w-]{30,}
API_KEY         CLOJARS_                                 [A-Za-z0-9]{40,}
API_KEY         xkeysib- xsmtpsib-                       [0-9a-f]{40,}-\w{12,}
API_KEY         AKCp                                     [A-Za-z0-9]{60,}
API_KEY         cmVmd                                    [A-Za-z0-9]{55,}
API_KEY!        AKC AP2 AP3 AP5 AP6 APA APB              [a-z0-9]{10,}
API_KEY         LTAI                                     [A-Za-z0-9]{12,26}
API_KEY         AKID                                     [A-Za-z0-9]{24,40}
API_KEY         AQVN YCA YCB YCM YCN YCO YCP             [\w-]{30,}
API_KEY         p8e- key- pubkey- api- sdk- mob-         [0-9a-f]{8}-?[0-9a-f-]{24,}
API_KEY         FLWSECK- FLWPUBK- FLWSECK_TEST-          [0-9a-fA-F]{12,}(?:-X)?
API_KEY         FLWPUBK_TEST- NRAK- NRJS- NRII- NRRA-    [\w-]{12,}
API_KEY         EZAK EZTK                                [A-Za-z0-9]{54}
API_KEY         PMAK- PMAT-                              [0-9a-zA-Z]{24,}(?:-[0-9a-f]{20,})?
API_KEY         gsk_ pplx- xai- nvapi- rpa_ tvly-        [\w-]{30,}
API_KEY         r8_                                      [A-Za-z0-9]{37}
API_KEY         lsv2_pt_ lsv2_sk_ phx_ pcsk_ jina_       [\w-]{30,}
API_KEY         e2b_ fw_ rnd_ napi_ aio_ zpka_ sb_secret_ (?=\w*\d)[\w-]{24,}
API_KEY         live_ test_                              (?=[a-z]*\d)[A-Za-z0-9]{30,}
API_KEY         rzp_live_ rzp_test_                      [A-Za-z0-9]{14,}
API_KEY         apify_api_ dvc_server_ CCDB1_ mka_       [\w-]{20,}
API_KEY         xnd_production_ xnd_development_         [\w-]{20,}
API_KEY         ico-                                     [A-Za-z0-9]{32}
API_KEY         API-                                     [A-Z0-9]{25,}
API_KEY         A3-                                      [A-Z0-9]{6}-(?:[A-Z0-9]{5,11}-){2,}[A-Z0-9]{5}
API_KEY         4b1d                                     [A-Za-z0-9]{38}
API_KEY         SK AC                                    [0-9a-f]{32}
API_KEY         oy2                                      [a-z0-9]{43}
API_KEY         APP_USR-                                 [\w-]{30,}
"""

# Shapes without a beginning of their own. Each holds a mark that ordinary runs of letters do not touch.
SHAPES = r"""
API_KEY         [0-9a-f]{32}-us\d{1,2}
TOKEN           [\w~.-]{3}\dQ~(?!x{6})[\w~.-]{31,34}(?![\w~-])
TOKEN           (?:bot)?\d{5,16}:A[\w-]{34}
TOKEN           [MNO][\w-]{23,27}\.[\w-]{6}\.[\w-]{27,}
TOKEN           [A-Za-z0-9]{14}\.atlasv1\.(?!x{6})[\w=-]{60,}
TOKEN           \d{15,16}(?:\||%7C)[\w-]{27,40}
WEBHOOK         https?://hooks\.slack\.com/(?:services|workflows|triggers)/[\w/+-]{16,300}
WEBHOOK         https?://[\w.-]+\.webhook\.office\.com/webhookb2/[\w/@-]{16,300}
WEBHOOK         https?://(?:\w+\.)?discord(?:app)?\.com/api/webhooks/[\w/-]{16,300}
WEBHOOK         https?://hooks\.zapier\.com/hooks/[\w/-]{10,300}
"""

# Names that hold a secret although no word in them says so: the provider's own habit.
VENDORS = r"_gitlab_session|cloudflare|sonar[._]?login|sumo(?:logic)?[._-]?access[._-]?id|message_?bird\w*id|heroku_key"


class Rule(NamedTuple):
    """A mask, how a token begins, and the expression its body must match."""

    mask: bytes
    start: bytes
    body: bytes
    even_filler: bool

    def match(self, data: bytes, at: int) -> re.Match[bytes] | None:
        """Match the body of a token that begins at a place; None if none does."""
        return compiled(self.body).match(data, at + len(self.start)) if data.startswith(self.start, at) else None


@cache
def compiled(body: bytes) -> re.Pattern[bytes]:
    """Compile a body when it is first needed: all of them at import would cost a twentieth of a second."""
    return re.compile(rb"(?:" + body + rb")(?![A-Za-z0-9])")


def _read_table() -> dict[bytes, list[Rule]]:
    """Index the table by the first three bytes, so that a run of text costs one look-up."""
    index: dict[bytes, list[Rule]] = {}
    for line in TABLE.strip().splitlines():
        mask, *starts, body = line.split()
        for start in starts:
            rule = Rule(mask.rstrip("!").encode(), start.encode(), body.encode(), "!" in mask)
            for key in [start[:3]] if start[2:] else [start + digit for digit in "0123456789abcdef"]:
                index.setdefault(key.encode(), []).append(rule)
    return index


def _read_shapes() -> re.Pattern[bytes]:
    bodies: dict[str, list[str]] = {}
    for line in SHAPES.strip().splitlines():
        mask, body = line.split(maxsplit=1)
        bodies.setdefault(mask, []).append(body)
    groups = (rf"(?P<{mask}>(?:{'|'.join(rows)})(?![A-Za-z0-9]))" for mask, rows in bodies.items())
    return re.compile("|".join(groups).encode())


STARTS = _read_table()
SHAPE = _read_shapes()
