#!/usr/bin/env bash
# Every relative link of every Markdown page leads to a file, and its #anchor to a heading of that file. Links to other
# hosts are not followed. Pictures count too.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# The anchors of a page, as GitHub makes them: small letters, no punctuation, blanks become hyphens.
anchors() {
    awk '/^```/ { code = !code } !code && /^#+ / { sub(/^#+ /, ""); print }' "$1" |
        sed -E 's/\[([^]]*)\]\([^)]*\)/\1/g' | tr '[:upper:]' '[:lower:]' | sed -E 's/[^a-z0-9 _-]//g; s/ /-/g'
}

# path:target of every link outside of code blocks and code spans.
links() {
    awk '/^ *```/ { code = !code } !code { gsub(/`[^`]*`/, ""); print }' "$1" |
        grep -oE '\]\([^)[:space:]]+\)|(src|srcset|href)="[^"]+"' |
        sed -E 's/^\]\(//; s/\)$//; s/^(src|srcset|href)="//; s/"$//' || true
}

checked=0 broken=0
while IFS= read -r page; do
    while IFS= read -r link; do
        [[ -n $link && ! $link =~ ^[a-z]+: ]] || continue
        checked=$((checked + 1))
        path=${link%%#*} anchor=
        [[ $link != *'#'* ]] || anchor=${link#*#}
        target=$page
        [[ -z $path ]] || target=$(dirname "$page")/$path
        if [[ ! -e $target ]]; then
            echo "$page: $link: there is no such file"
            broken=$((broken + 1))
        elif [[ -n $anchor && $target == *.md ]] && ! anchors "$target" | grep -qxF -- "$anchor"; then
            echo "$page: $link: $path has no such heading"
            broken=$((broken + 1))
        fi
    done < <(links "$page")
done < <(git ls-files --cached --others --exclude-standard '*.md' llms.txt)

((broken == 0)) || { echo "links: $broken of $checked lead nowhere" >&2; exit 1; }
echo "links: $checked checked"
