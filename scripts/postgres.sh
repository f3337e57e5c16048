#!/usr/bin/env bash
# A private, throw-away PostgreSQL for the tests. It never touches a server that it did not start itself.
#
#   scripts/postgres.sh install   make sure the server programs are there (apt-get, as root; otherwise says what to do)
#   scripts/postgres.sh start     start a server on a free loopback port; its URL goes to target/postgres/url
#   scripts/postgres.sh stop      stop that server and remove its data
#   scripts/postgres.sh status    print the URL if it runs; exit 1 if not
#
# Each command may be repeated. Each checkout has its own server, so several can run side by side.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
state=$root/target/postgres # url, and home: the directory of the running server
url_file=$state/url
home_file=$state/home

say() { printf 'postgres: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

# The directory with the newest server programs, or nothing.
find_bin() {
    local dir
    for dir in $(printf '%s\n' /usr/lib/postgresql/*/bin | sort -rV) \
        "$(dirname "$(command -v initdb || echo /nowhere/initdb)")"; do
        if [[ -x $dir/initdb && -x $dir/pg_ctl && -x $dir/postgres ]]; then
            echo "$dir"
            return
        fi
    done
}

# PostgreSQL refuses to run as root, so root hands the server to an unprivileged user.
owner=$(id -un)
if [[ $(id -u) == 0 ]]; then
    owner=postgres
    getent passwd postgres >/dev/null || owner=nobody
fi

as_owner() {
    if [[ $(id -u) == 0 ]]; then
        runuser -u "$owner" -- env -C / LC_ALL=C "$@"
    else
        env -C / LC_ALL=C "$@"
    fi
}

install_programs() {
    local bin
    bin=$(find_bin)
    if [[ -n $bin ]]; then
        say "found $("$bin/postgres" --version) in $bin"
        return
    fi
    command -v apt-get >/dev/null || die "no PostgreSQL server programs found; install PostgreSQL 13 or newer"
    [[ $(id -u) == 0 ]] || die "no PostgreSQL server programs found; run as root: apt-get install postgresql"
    say "installing with apt-get"
    # Without this file the package would also create and start a server of its own on port 5432.
    if [[ ! -e /etc/postgresql-common/createcluster.conf ]]; then
        mkdir -p /etc/postgresql-common
        echo 'create_main_cluster = false' >/etc/postgresql-common/createcluster.conf
    fi
    export DEBIAN_FRONTEND=noninteractive UCF_FORCE_CONFFOLD=1
    apt-get update -qq >&2
    apt-get install -y -qq --no-install-recommends -o Dpkg::Options::=--force-confold postgresql >&2
    bin=$(find_bin)
    [[ -n $bin ]] || die "apt-get succeeded, but there are no server programs under /usr/lib/postgresql/*/bin"
    say "installed $("$bin/postgres" --version)"
}

# The process id of our server, or nothing. The command line is compared as well: after a crash the id in
# postmaster.pid may belong to another process.
server_pid() {
    local home pid
    home=$(cat "$home_file" 2>/dev/null) || return 0
    pid=$(head -n 1 "$home/data/postmaster.pid" 2>/dev/null) || return 0
    if [[ -r /proc/$pid/cmdline ]]; then
        tr '\0' ' ' <"/proc/$pid/cmdline"
    else
        ps -o args= -p "$pid" 2>/dev/null || true
    fi | grep -qF -- "-D $home/data" && echo "$pid"
    return 0
}

# Only a directory that `start` has made is ever removed.
remove_home() {
    local home
    home=$(cat "$home_file" 2>/dev/null) || home=
    if [[ $home == /tmp/redrive-postgres.* && -d $home ]]; then
        rm -rf -- "$home"
    fi
    rm -f -- "$url_file" "$home_file"
}

start_server() {
    if [[ -n $(server_pid) && -s $url_file ]]; then
        say "already running"
        cat "$url_file"
        return
    fi
    stop_server
    local bin home password port
    bin=$(find_bin)
    [[ -n $bin ]] || die "no PostgreSQL server programs found; run scripts/postgres.sh install"

    # In /tmp, because the unprivileged user may not be able to enter the checkout. Mode 700 from mktemp stays.
    home=$(mktemp -d /tmp/redrive-postgres.XXXXXXXX)
    echo "$home" >"$home_file"
    # A password, because a superuser on loopback without one is open to everybody on this machine.
    password=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
    printf '%s\n' "$password" >"$home/password"
    [[ $(id -u) != 0 ]] || chown -R "$owner" "$home"

    as_owner "$bin/initdb" -D "$home/data" -U redrive --pwfile="$home/password" --auth=scram-sha-256 \
        --encoding=UTF8 --no-locale --no-sync >"$state/initdb.log" 2>&1 \
        || die "initdb failed: $(tail -n 3 "$state/initdb.log")"
    # Fast rather than durable: the data is thrown away. No socket file, so nothing can clash but the port.
    as_owner tee -a "$home/data/postgresql.conf" >/dev/null <<-CONF
		listen_addresses = '127.0.0.1'
		unix_socket_directories = ''
		max_connections = 200
		shared_buffers = 64MB
		fsync = off
		synchronous_commit = off
		full_page_writes = off
	CONF

    # Binding is the only test of a free port without a race, so the server itself tries; below the range from
    # which the system hands out ports for outgoing connections.
    for _ in $(seq 20); do
        port=$((20000 + RANDOM % 12000))
        # The lock is not passed on, or it would be held as long as the server lives.
        if as_owner "$bin/pg_ctl" -D "$home/data" -l "$home/log" -o "-p $port" -w -t 60 start \
            >"$state/start.log" 2>&1 </dev/null 9>&-; then
            (umask 077 && echo "postgres://redrive:$password@127.0.0.1:$port/postgres" >"$url_file")
            say "started $("$bin/postgres" --version) on port $port, process $(server_pid)"
            cat "$url_file"
            return
        fi
        as_owner grep -q 'Address already in use' "$home/log" || break
        as_owner rm -f "$home/log"
    done
    say "$(as_owner tail -n 5 "$home/log" 2>/dev/null || cat "$state/start.log")"
    remove_home
    die "the server did not start"
}

stop_server() {
    local pid
    pid=$(server_pid)
    if [[ -n $pid ]]; then
        kill -QUIT "$pid" # immediate shutdown: there is no data to keep
        for _ in $(seq 100); do
            [[ -n $(server_pid) ]] || break
            sleep 0.1
        done
        [[ -z $(server_pid) ]] || die "process $pid does not stop"
        say "stopped process $pid"
    fi
    remove_home
}

# Two commands in one checkout take turns.
locked() {
    mkdir -p "$state"
    exec 9>"$state/lock"
    flock 9
    "$@"
}

case ${1:-} in
install) install_programs ;;
start) locked start_server ;;
stop) locked stop_server ;;
status)
    [[ -n $(server_pid) && -s $url_file ]] || die "not running; run scripts/postgres.sh start"
    cat "$url_file"
    ;;
*)
    sed -n '2,9s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2
    exit 2
    ;;
esac
