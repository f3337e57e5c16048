"""Verifies one request with the reference library from PyPI (v1) and PyNaCl (v1a). Reads JSON, prints ok or no."""
import base64, json, sys

request = json.load(sys.stdin)
headers, body, key = request["headers"], request["body"], request["key"]
try:
    if key.startswith("whsec_"):
        from standardwebhooks.webhooks import Webhook

        Webhook(key).verify(body, headers, json_parse=False)
    else:
        from nacl.signing import VerifyKey

        public = VerifyKey(base64.b64decode(key.removeprefix("whpk_")))
        content = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.{body}".encode()
        for signature in headers["webhook-signature"].split(" "):
            version, encoded = signature.split(",")
            if version == "v1a":
                try:
                    public.verify(content, base64.b64decode(encoded))
                    break
                except Exception:
                    continue
        else:
            raise ValueError("no v1a signature matches")
    print("ok")
except Exception as error:
    print("no:", error)
