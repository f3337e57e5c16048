#!/usr/bin/env python3
"""Compares this checkout with an earlier commit: both are built, then measured by turns on the same machine.

    scripts/compare.py COMMIT [--repeats N] [--n MESSAGES] [--skip-kafka]

Prints the median of each figure before and after, the ratio of the medians, and the smallest and largest ratio of the
rounds. A round runs both builds, each time in the other order, so that a change of the machine's load affects both. The
earlier commit is checked out and built below target/compare; the Kafka broker is our own and is stopped again.
"""

import argparse
import os
import re
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WORK = ROOT / "target" / "compare"


def run(command, **options):
    done = subprocess.run(command, capture_output=True, text=True, **options)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def build(checkout, target):
    """The benchmarks of a checkout."""
    environment = {**os.environ, "CARGO_TARGET_DIR": str(target)}
    cargo = ["cargo", "build", "--quiet", "--release", "--locked"]
    run([*cargo, "-p", "redrive-lab", "--features", "kafka", "--bin", "redrive-bench"], cwd=checkout, env=environment)
    run([*cargo, "-p", "redrive-lab", "--features", "kafka", "--bin", "redrive-bench-kafka"], cwd=checkout, env=environment)
    run([*cargo, "-p", "redrive-sinks", "--example", "webhook_rate"], cwd=checkout, env=environment)
    return target / "release"


def checked_out(commit):
    checkout = WORK / "checkout"
    wanted = run(["git", "rev-parse", f"{commit}^{{commit}}"], cwd=ROOT)
    there = subprocess.run(["git", "rev-parse", "HEAD"], cwd=checkout, capture_output=True, text=True) if checkout.is_dir() else None
    if there and there.stdout == wanted:
        return checkout  # built already
    subprocess.run(["git", "worktree", "remove", "--force", checkout], cwd=ROOT, capture_output=True)
    run(["git", "worktree", "add", "--detach", checkout, commit], cwd=ROOT)
    return checkout


def scenario(built, name, fates, n):
    """The figures of one measurement of the embedded engine, by name."""
    data = WORK / "data"
    shutil.rmtree(data, ignore_errors=True)
    text = run([built / "redrive-bench", "--scenario", name, "--fates", fates, "--n", str(n), "--dir", data])
    return {key: float(value) for key, value in re.findall(r"^(\w+)=([\d.e-]+)$", text, re.MULTILINE)}


def embedded(built, n):
    drain = scenario(built, "drain", "succeed", n)
    mixed = scenario(built, "drain", "workload", n)
    flow = scenario(built, "flow", "succeed", n)
    yield "embedded A, drained per second", n / drain["settled_s"]
    yield "embedded B, first attempts per second", n / mixed["first_s"]
    yield "embedded, in and out at the same time, per second", n / flow["settled_s"]


def webhooks(built, _n):
    text = run([built / "examples" / "webhook_rate", "60000", "1"], cwd=WORK)
    yield "webhooks per second", float(re.search(r"redrive, embedded engine\s+([\d.]+)/s", text)[1])


def kafka(built, n, brokers):
    command = [built / "redrive-bench-kafka", "--brokers", brokers, "--only", "mixed", "--repeats", "1", "--n", str(n)]
    text = run([*command, "--dir", WORK / "data"])

    def row(title):
        return float(re.search(rf"\| {title}[^|]*\|[^|]*\|\s*([\d,.]+)", text)[1].replace(",", ""))

    yield "Kafka A, drained per second", row("A drain, preloaded")
    yield "Kafka B, first attempts per second", row("B first attempts, saturated")


def by_turns(builds, repeats, measure):
    """Figures of both builds, round by round."""
    found = {}
    for repeat in range(repeats):
        for which in (0, 1) if repeat % 2 == 0 else (1, 0):
            for title, value in measure(builds[which]):
                found.setdefault(title, ([], []))[which].append(value)
                print(f"  round {repeat + 1}, {'after' if which else 'before'}: {title} {value:,.0f}", file=sys.stderr)
    return found


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("commit")
    arguments.add_argument("--repeats", type=int, default=5)
    arguments.add_argument("--n", type=int, default=3_000_000)
    arguments.add_argument("--skip-kafka", action="store_true")
    asked = arguments.parse_args()

    WORK.mkdir(parents=True, exist_ok=True)
    builds = (build(checked_out(asked.commit), WORK / "build"), build(ROOT, ROOT / "target"))
    print(f"before: {run(['git', 'rev-parse', '--short=12', asked.commit], cwd=ROOT).strip()}")
    print(f"after:  {run(['git', 'describe', '--always', '--dirty', '--abbrev=12'], cwd=ROOT).strip()}")
    print(f"cores: {os.cpu_count()}, load at start: {' '.join(f'{load:.2f}' for load in os.getloadavg())}")
    print(f"{asked.repeats} rounds, {asked.n:,} messages of 512 bytes\n", flush=True)

    found = by_turns(builds, asked.repeats, lambda built: embedded(built, asked.n))
    found |= by_turns(builds, asked.repeats, lambda built: webhooks(built, asked.n))
    if not asked.skip_kafka:
        environment = {**os.environ, "REDRIVE_KAFKA_DIR": str(WORK / "kafka"), "REDRIVE_KAFKA_HEAP": "1g"}
        broker = [ROOT / "scripts" / "kafka.sh"]
        address = run([*broker, "up"], cwd=ROOT, env=environment).strip()
        try:
            found |= by_turns(builds, asked.repeats, lambda built: kafka(built, asked.n, address))
        finally:
            run([*broker, "down"], cwd=ROOT, env=environment)

    print("| figure | before | after | after / before | spread of the rounds |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for title, (before, after) in found.items():
        ratios = [new / old for old, new in zip(before, after)]
        old, new = statistics.median(before), statistics.median(after)
        print(f"| {title} | {old:,.0f} | {new:,.0f} | {new / old:.2f} | {min(ratios):.2f}–{max(ratios):.2f} |")


if __name__ == "__main__":
    main()
