// Verifies one request with the reference library from npm (v1) and node's crypto (v1a). Reads JSON, prints ok or no.
import { createPublicKey, verify } from "node:crypto";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

const request = JSON.parse(readFileSync(0, "utf8"));
const { headers, body, key } = request;
try {
  if (key.startsWith("whsec_")) {
    const { Webhook } = createRequire(process.env.REDRIVE_NODE_MODULES + "/")("standardwebhooks");
    new Webhook(key).verify(body, headers);
  } else {
    // The fixed beginning of an ed25519 public key in SPKI.
    const spki = Buffer.concat([Buffer.from("302a300506032b6570032100", "hex"), Buffer.from(key.slice(5), "base64")]);
    const publicKey = createPublicKey({ key: spki, format: "der", type: "spki" });
    const content = Buffer.from(`${headers["webhook-id"]}.${headers["webhook-timestamp"]}.${body}`);
    const signatures = headers["webhook-signature"].split(" ").map((one) => one.split(","));
    const matches = signatures.some(
      ([version, encoded]) => version === "v1a" && verify(null, content, publicKey, Buffer.from(encoded, "base64")),
    );
    if (!matches) throw new Error("no v1a signature matches");
  }
  console.log("ok");
} catch (error) {
  console.log("no:", error.message);
}
