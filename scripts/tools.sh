#!/usr/bin/env bash
# Makes sure that the programs the tests call are there. Installs Debian packages as root, only those that are
# missing and without a question; otherwise says what to install. May be repeated.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() { printf 'tools: %s\n' "$*" >&2; }

if ! command -v cargo >/dev/null; then
    say "cargo is missing: install Rust with rustup (https://rustup.rs); rust-toolchain.toml names the version"
    exit 1
fi

# program:package. jq reads what cargo has built. curl is what the README tells people to type, strace makes system calls fail, mkfs.ext4 makes the disk of
# the power-cut tests. rdkafka builds librdkafka with c++ and make. java runs the broker, Maven fetches it, kcat reads it.
# With --all-features librdkafka takes the system's OpenSSL and curl, which pkg-config finds; a plain build needs neither.
# nginx and caddy stand in front of a processor, as the recipes of deploy/proxy say; the tests start their own.
# promtool tests the alert rules; Debian ships it with the server and starts that, but the tests need the tool alone.
broker=(java:default-jre-headless mvn:maven)
[[ -z ${REDRIVE_TEST_KAFKA:-} ]] || broker=()
missing=()
for pair in cc:gcc cc:libc6-dev strace:strace curl:curl mkfs.ext4:e2fsprogs python3:python3 jq:jq c++:g++ promtool:prometheus nginx:nginx-light caddy:caddy make:make kcat:kcat pkg-config:pkg-config "${broker[@]}"; do
    PATH=$PATH:/usr/sbin:/sbin command -v "${pair%%:*}" >/dev/null || missing+=("${pair#*:}")
done
# A library has no program to look for.
pkg-config --exists openssl 2>/dev/null || [[ -e /usr/include/openssl/ssl.h ]] || missing+=(libssl-dev)
pkg-config --exists libcurl 2>/dev/null || missing+=(libcurl4-openssl-dev)
# Holds files against the schema of the configuration, as editors do.
python3 -c 'import jsonschema' 2>/dev/null || missing+=(python3-jsonschema)

if ((${#missing[@]} == 0)); then
    say "nothing is missing besides, perhaps, PostgreSQL"
elif ! command -v apt-get >/dev/null; then
    say "missing, and there is no apt-get: install what your system calls ${missing[*]}"
    exit 1
elif [[ $(id -u) != 0 ]]; then
    say "missing: run as root: apt-get install ${missing[*]}"
    exit 1
else
    say "installing ${missing[*]}"
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq >&2 </dev/null
    apt-get install -y -qq --no-install-recommends "${missing[@]}" >&2 </dev/null
fi

# With a server of their own, the tests need none of ours.
[[ -n ${REDRIVE_TEST_POSTGRES:-} ]] || scripts/postgres.sh install
[[ -n ${REDRIVE_TEST_KAFKA:-} ]] || scripts/kafka.sh jars

# 64 MB, a quarter of a minute. Without it one test is skipped, so it is not worth a failure.
scripts/page.sh install || say "without Chromium the test of the page in a browser is skipped"

# Half a minute. Without them the test of signatures by the reference libraries is skipped.
scripts/webhook-libs.sh || say "without the libraries of Standard Webhooks the test of signatures by them is skipped"

# Without it the test with a foreign receiver of Web Push is skipped.
scripts/push-receiver.sh install || say "without http_ece the test that decrypts a push with it is skipped"
