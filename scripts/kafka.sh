#!/usr/bin/env bash
# A private, throw-away Apache Kafka (one node, KRaft) for the tests, from the jars that scripts/kafka/pom.xml pins.
#
#   scripts/kafka.sh up        fetch the jars once, start a broker on a free loopback port, print its address
#   scripts/kafka.sh down      stop that broker and remove its data
#   scripts/kafka.sh status    print the address if it runs; exit 1 if not
#   scripts/kafka.sh restart [-9]   stop it (or kill it) and start it again on the same port with the same data
#   scripts/kafka.sh jars      fetch the jars, nothing else
#   scripts/kafka.sh run kafka-topics.sh …   one of Kafka's own tools, from the same jars
#
# Each command may be repeated. Each checkout has its own broker, so several can run side by side.
#   REDRIVE_KAFKA_DIR    where its address, pid and log are kept; target/kafka unless set (one broker for each)
#   REDRIVE_KAFKA_PORT   its port; a free one unless set
#   REDRIVE_KAFKA_HEAP   memory of the broker; 512m unless set
#   REDRIVE_KAFKA_SECURE=1   two more listeners, for the tests of TLS and passwords; $REDRIVE_KAFKA_DIR/secure says where they
#                        are (sasl_ssl with SCRAM-SHA-512, sasl_plaintext with PLAIN), and has ca.pem, user and password
#   REDRIVE_KAFKA_ADVERTISED   the port it tells its clients, when a proxy stands in front of it; its own unless set
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
state=${REDRIVE_KAFKA_DIR:-$root/target/kafka}
heap=${REDRIVE_KAFKA_HEAP:-512m}
pom=$root/scripts/kafka/pom.xml
version=$(sed -n 's|.*<kafka.version>\(.*\)</kafka.version>.*|\1|p' "$pom")
jars=$root/target/kafka/jars-$version
address_file=$state/address
home_file=$state/home
log=$state/broker.log

say() { printf 'kafka: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

fetch_jars() {
    [[ -e $jars/complete ]] && return
    command -v java >/dev/null && command -v mvn >/dev/null || die "java or mvn is missing; run scripts/tools.sh"
    say "fetching Apache Kafka $version (54 MB, once)"
    mkdir -p "$jars"
    mvn -B -q -f "$pom" dependency:copy-dependencies -DoutputDirectory="$jars" >"$jars.log" 2>&1 </dev/null \
        || die "Maven failed: $(tail -n 5 "$jars.log")"
    touch "$jars/complete"
}

# The process id of our broker, or nothing. The command line is compared as well: after a crash the id may be another's.
broker_pid() {
    local home pid
    home=$(cat "$home_file" 2>/dev/null) || return 0
    pid=$(cat "$home/pid" 2>/dev/null) || return 0
    [[ -r /proc/$pid/cmdline ]] || return 0
    tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null | grep -qF -- "$home/server.properties" && echo "$pid"
    return 0
}

settings() {
    local home=$1 port=$2 controller=$3 guarded=
    if [[ -n ${REDRIVE_KAFKA_SECURE:-} ]]; then
        guarded=SASL_SSL://127.0.0.1:$((port - 6000)),SASL_PLAINTEXT://127.0.0.1:$((port - 7000))
    fi
    cat <<-CONF
		process.roles=broker,controller
		node.id=1
		controller.quorum.voters=1@127.0.0.1:$controller
		controller.listener.names=CONTROLLER
		listeners=PLAINTEXT://127.0.0.1:$port,CONTROLLER://127.0.0.1:$controller${guarded:+,$guarded}
		advertised.listeners=PLAINTEXT://127.0.0.1:${REDRIVE_KAFKA_ADVERTISED:-$port}${guarded:+,$guarded}
		listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL_SSL:SASL_SSL,SASL_PLAINTEXT:SASL_PLAINTEXT
		log.dirs=$home/data
		# Topics are made by whoever needs them, never by a typing error.
		auto.create.topics.enable=false
		# One node: one copy of everything, and few partitions, so that it is up quickly.
		offsets.topic.replication.factor=1
		offsets.topic.num.partitions=4
		transaction.state.log.replication.factor=1
		transaction.state.log.min.isr=1
		transaction.state.log.num.partitions=4
		share.coordinator.state.topic.replication.factor=1
		share.coordinator.state.topic.min.isr=1
		share.coordinator.state.topic.num.partitions=1
		# Tests shall not wait for defaults that are made for production.
		group.initial.rebalance.delay.ms=0
		broker.session.timeout.ms=4000
		broker.heartbeat.interval.ms=500
		group.min.session.timeout.ms=500
		transaction.abort.timed.out.transaction.cleanup.interval.ms=500
		log.cleaner.backoff.ms=2000
	CONF
}

# A certificate of its own for the two guarded listeners and a password, made anew for every broker; prints what else its
# settings need. keytool comes with java.
secure() {
    local home=$1 port=$2 password store
    store=$home/keys.p12
    mkdir -p "$state/secure"
    password=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
    printf '%s\n' "$password" >"$state/secure/password"
    echo redrive >"$state/secure/user"
    echo "127.0.0.1:$((port - 6000))" >"$state/secure/sasl_ssl"
    echo "127.0.0.1:$((port - 7000))" >"$state/secure/sasl_plaintext"
    rm -f -- "$store"
    keytool -genkeypair -alias broker -keyalg EC -groupname secp256r1 -dname CN=127.0.0.1 -ext san=ip:127.0.0.1 -validity 30 \
        -storetype PKCS12 -keystore "$store" -storepass "$password" >"$log" 2>&1 </dev/null
    keytool -exportcert -rfc -alias broker -keystore "$store" -storepass "$password" >"$state/secure/ca.pem" 2>>"$log" </dev/null
    cat <<-CONF
		listener.name.sasl_ssl.ssl.keystore.type=PKCS12
		listener.name.sasl_ssl.ssl.keystore.location=$store
		listener.name.sasl_ssl.ssl.keystore.password=$password
		listener.name.sasl_ssl.ssl.key.password=$password
		listener.name.sasl_ssl.sasl.enabled.mechanisms=SCRAM-SHA-512
		listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
		listener.name.sasl_plaintext.sasl.enabled.mechanisms=PLAIN
		listener.name.sasl_plaintext.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required user_redrive="$password";
	CONF
}

answers() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

class_path() { printf '%s/*' "$jars"; }

# Starts the broker of $1 and waits until it answers on $2. Fails when the process ends or a minute has passed.
launch() {
    local home=$1 port=$2 pid
    : >"$log"
    # The lock is not passed on, or it would be held as long as the broker lives.
    env -C / setsid java "-Xmx$heap" -Xms128m -XX:+ExitOnOutOfMemoryError -cp "$(class_path)" kafka.Kafka "$home/server.properties" \
        >>"$log" 2>&1 </dev/null 9>&- &
    pid=$!
    disown "$pid"
    echo "$pid" >"$home/pid"
    for _ in $(seq 600); do
        # The port opens when the broker is ready to answer, not before.
        if answers "$port" && [[ -n $(broker_pid) ]]; then return 0; fi
        kill -0 "$pid" 2>/dev/null || return 1
        sleep 0.1
    done
    kill -KILL "$pid" 2>/dev/null || true
    return 1
}

# Only a directory that `up` has made is ever removed.
remove_home() {
    local home
    home=$(cat "$home_file" 2>/dev/null) || home=
    if [[ $home == */redrive-kafka.* && -d $home ]]; then
        rm -rf -- "$home"
    fi
    rm -f -- "$address_file" "$home_file"
    rm -rf -- "$state/secure"
}

stop_broker() {
    local pid signal=${1:-TERM}
    pid=$(broker_pid)
    [[ -n $pid ]] || return 0
    kill "-$signal" "$pid"
    for turn in $(seq 300); do
        [[ -n $(broker_pid) ]] || { say "stopped process $pid"; return 0; }
        # A broker of one node may wait for itself; there is nothing worth waiting for.
        ((turn != 100)) || kill -KILL "$pid" 2>/dev/null || true
        sleep 0.1
    done
    die "process $pid does not stop"
}

up() {
    if [[ -n $(broker_pid) && -s $address_file ]]; then
        say "already running"
        cat "$address_file"
        return
    fi
    down
    fetch_jars
    local home port id
    home=$(mktemp -d "${TMPDIR:-/tmp}/redrive-kafka.XXXXXXXX")
    echo "$home" >"$home_file"
    id=$(java -cp "$(class_path)" kafka.tools.StorageTool random-uuid 2>/dev/null)
    # Binding is the only test of a free port without a race, so the broker itself tries; below the range from which the
    # system hands out ports for outgoing connections.
    for _ in $(seq 10); do
        port=${REDRIVE_KAFKA_PORT:-$((20000 + RANDOM % 6000))}
        settings "$home" "$port" "$((port + 6001))" >"$home/server.properties"
        local scram=()
        if [[ -n ${REDRIVE_KAFKA_SECURE:-} ]]; then
            secure "$home" "$port" >>"$home/server.properties" || die "no certificate: $(tail -n 3 "$log")"
            scram=(--add-scram "SCRAM-SHA-512=[name=redrive,password=$(cat "$state/secure/password")]")
        fi
        rm -rf -- "$home/data"
        java -cp "$(class_path)" kafka.tools.StorageTool format -t "$id" -c "$home/server.properties" "${scram[@]}" >"$log" 2>&1 </dev/null \
            || die "the storage cannot be formatted: $(tail -n 3 "$log")"
        # Somebody else's server would answer on a taken port and look like ours.
        if ! answers "$port" && launch "$home" "$port"; then
            echo "127.0.0.1:$port" >"$address_file"
            say "started Apache Kafka $version on port $port, process $(broker_pid)"
            cat "$address_file"
            return
        fi
        [[ -z ${REDRIVE_KAFKA_PORT:-} ]] || break
    done
    say "$(tail -n 5 "$log")"
    remove_home
    die "the broker did not start"
}

down() {
    stop_broker KILL
    remove_home
}

restart() {
    [[ -s $address_file ]] || die "not running; run scripts/kafka.sh up"
    stop_broker "${1:+KILL}"
    local home port
    home=$(cat "$home_file")
    port=$(sed 's/.*://' "$address_file")
    # A process that was killed keeps its sockets for a moment.
    for _ in $(seq 50); do
        answers "$port" || break
        sleep 0.1
    done
    launch "$home" "$port" || die "the broker did not come back: $(tail -n 5 "$log")"
    say "restarted, process $(broker_pid)"
    cat "$address_file"
}

# The scripts of Kafka's distribution are one line each around these classes; the jars come without them.
tool() {
    local class
    case ${1:-} in
    kafka-topics.sh) class=org.apache.kafka.tools.TopicCommand ;;
    kafka-configs.sh) class=kafka.admin.ConfigCommand ;;
    kafka-acls.sh) class=org.apache.kafka.tools.AclCommand ;;
    kafka-consumer-groups.sh) class=org.apache.kafka.tools.consumer.group.ConsumerGroupCommand ;;
    kafka-delete-records.sh) class=org.apache.kafka.tools.DeleteRecordsCommand ;;
    kafka-console-consumer.sh) class=org.apache.kafka.tools.consumer.ConsoleConsumer ;;
    kafka-producer-perf-test.sh) class=org.apache.kafka.tools.ProducerPerformance ;;
    kafka-consumer-perf-test.sh) class=org.apache.kafka.tools.ConsumerPerformance ;;
    kafka-get-offsets.sh) class=org.apache.kafka.tools.GetOffsetShell ;;
    *) die "which tool? kafka-topics.sh, kafka-configs.sh, kafka-acls.sh, kafka-consumer-groups.sh, kafka-get-offsets.sh, …" ;;
    esac
    shift
    fetch_jars
    exec java -Xmx256m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -cp "$(class_path)" "$class" "$@"
}

# Two commands in one checkout take turns.
locked() {
    mkdir -p "$state"
    exec 9>"$state/lock"
    flock 9
    "$@"
}

case ${1:-} in
up) locked up ;;
down) locked down ;;
restart) locked restart "${2:+9}" ;;
jars) locked fetch_jars ;;
run) shift && tool "$@" ;;
status)
    [[ -n $(broker_pid) && -s $address_file ]] || die "not running; run scripts/kafka.sh up"
    cat "$address_file"
    ;;
*)
    sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}" >&2
    exit 2
    ;;
esac
