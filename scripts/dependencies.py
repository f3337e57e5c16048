#!/usr/bin/env python3
"""Licences, bans, duplicates and sources of the dependencies, by the rules of deny.toml.

A second for what `cargo deny check licenses bans sources` does, so that CI can run it without building cargo-deny: the part
of its rules that deny.toml uses. It reads what `cargo metadata` says, and needs no network. `make deny` stays the judge,
and knows advisories.

    scripts/dependencies.py
"""

import json
import re
import subprocess
import sys
import tomllib
from collections import defaultdict

CRATES_IO = "registry+https://github.com/rust-lang/crates.io-index"


def allowed(expression, allow):
    """Whether an SPDX expression can be satisfied with these licences."""
    words = re.findall(r"\(|\)|[^\s()]+", expression.replace("/", " OR "))
    python = []
    for word in words:
        if word in ("(", ")"):
            python.append(word)
        elif word in ("OR", "AND"):
            python.append(word.lower())
        elif word == "WITH":
            python.append("and False and")  # an exception would have to be allowed by name
        else:
            python.append(str(word in allow))
    return bool(eval(" ".join(python)))  # only parentheses, and, or, True and False


def main():
    with open("deny.toml", "rb") as file:
        rules = tomllib.load(file)
    found = defaultdict(dict)
    for target in rules["graph"]["targets"]:
        asked = ["cargo", "metadata", "--format-version", "1", "--locked", "--all-features", "--filter-platform", target]
        said = json.loads(subprocess.run(asked, check=True, capture_output=True, text=True).stdout)
        packages = {package["id"]: package for package in said["packages"]}
        for node in said["resolve"]["nodes"]:
            package = packages[node["id"]]
            users = found[package["id"]].setdefault("users", set())
            found[package["id"]]["package"] = package
            for other in said["resolve"]["nodes"]:
                if any(dep["pkg"] == node["id"] for dep in other["deps"]):
                    users.add(packages[other["id"]]["name"])

    faults = []
    versions = defaultdict(set)
    for entry in found.values():
        package, users = entry["package"], entry["users"]
        name = f"{package['name']} {package['version']}"
        if package["source"] is None:
            continue
        versions[package["name"]].add(package["version"])
        if package["source"] != CRATES_IO:
            faults.append(f"{name} comes from {package['source']}, not from crates.io")
        if not allowed(package["license"] or "none", rules["licenses"]["allow"]):
            faults.append(f"{name} has the licence {package['license']}, which deny.toml does not allow")
        for ban in rules["bans"]["deny"]:
            if ban["crate"] == package["name"] and not users <= set(ban.get("wrappers", [])):
                faults.append(f"{name} is banned ({ban['reason']}); used by {', '.join(sorted(users))}")

    skipped = [skip["crate"].split("@") for skip in rules["bans"]["skip"]]
    for name, all_of in versions.items():
        counted = [v for v in all_of if not any(name == n and (v + ".").startswith(s + ".") for n, s in skipped)]
        if len(counted) > 1:
            faults.append(f"{name} is there in several versions: {', '.join(sorted(all_of))}")

    for fault in sorted(faults):
        print(f"fault: {fault}", file=sys.stderr)
    print(f"{sum(len(all_of) for all_of in versions.values())} dependencies, {len(faults)} faults")
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
