#!/usr/bin/env bash
# The README's example is an example file, to the letter. Prints the difference and fails if it is not.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# A code block that follows the line <!-- example: path --> must equal that file.
checked=0
while read -r path; do
    block=$(awk -v mark="<!-- example: $path -->" '
        $0 == mark { armed = 1; next }
        armed && /^```rust/ { inside = 1; next }
        inside && /^```/ { exit }
        inside { print }' README.md)
    diff -u --label "$path" --label README.md "$path" - <<<"$block"
    checked=$((checked + 1))
done < <(sed -n 's/^<!-- example: \(.*\) -->$/\1/p' README.md)

((checked > 0)) || { echo "README.md names no example" >&2; exit 1; }
echo "readme: $checked example(s) equal their files"
