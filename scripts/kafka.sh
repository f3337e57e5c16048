#!/usr/bin/env bash
# A private, throw-away Apache Kafka (KRaft) for the tests, from the jars that scripts/kafka/pom.xml pins.
#
#   scripts/kafka.sh up        fetch the jars once, start the brokers on free loopback ports, print their addresses
#   scripts/kafka.sh down      stop them and remove their data
#   scripts/kafka.sh status    print the addresses if at least one broker runs; exit 1 if none does
#   scripts/kafka.sh restart [-9]   stop all (or kill them) and start them again on the same ports with the same data
#   scripts/kafka.sh stop N    stop node N in order; kill N: kill -9; start N: start it again, on its port with its data
#   scripts/kafka.sh freeze N  stop node N from running (SIGSTOP): connections stay, nobody answers; thaw N: let it go on
#   scripts/kafka.sh jars      fetch the jars, nothing else
#   scripts/kafka.sh run kafka-topics.sh …   one of Kafka's own tools, from the same jars
#
# Each command may be repeated. Each checkout has its own brokers, so several can run side by side.
#   REDRIVE_KAFKA_DIR    where addresses and logs are kept; target/kafka unless set (one cluster for each)
#   REDRIVE_KAFKA_NODES  how many brokers `up` starts; 1 unless set. With 3: replication 3, min.insync.replicas 2
#   REDRIVE_KAFKA_PORT   the port of the first one, the others follow; a free one unless set
#   REDRIVE_KAFKA_HEAP   memory of each broker; 512m unless set
#   REDRIVE_KAFKA_SECURE=1   two more listeners, for the tests of TLS, passwords and ACLs; $REDRIVE_KAFKA_DIR/secure says
#                        where those of node 1 are (sasl_ssl with SCRAM-SHA-512, sasl_plaintext with PLAIN and unsigned OAUTHBEARER tokens), and has ca.pem,
#                        user and password. ACLs count; whoever comes without a password is a superuser
#   REDRIVE_KAFKA_ADVERTISED   the port it tells its clients, when a proxy stands in front of it; its own unless set (one node)
#   REDRIVE_KAFKA_EXTRA  more lines for server.properties
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
nodes=${REDRIVE_KAFKA_NODES:-1}

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

# Where node $1 lives; nothing before `up`.
node_home() {
    local home
    home=$(cat "$home_file" 2>/dev/null) || return 0
    [[ -d $home/node-$1 ]] && echo "$home/node-$1"
    return 0
}

# The numbers of all nodes that `up` has made.
all_nodes() {
    local home
    home=$(cat "$home_file" 2>/dev/null) || return 0
    for node in "$home"/node-*; do
        [[ -d $node ]] && echo "${node##*-}"
    done
    return 0
}

# The process id of node $1, or nothing. The command line is compared as well: after a crash the id may be another's.
broker_pid() {
    local node pid
    node=$(node_home "$1")
    [[ -n $node ]] || return 0
    pid=$(cat "$node/pid" 2>/dev/null) || return 0
    [[ -r /proc/$pid/cmdline ]] || return 0
    tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null | grep -qF -- "$node/server.properties" && echo "$pid"
    return 0
}

runs() {
    local node
    for node in $(all_nodes); do
        [[ -z $(broker_pid "$node") ]] || return 0
    done
    return 1
}

port_of() { sed 's/.*://' "$(node_home "$1")/address"; }

node_log() { if (($1 == 1)); then echo "$log"; else echo "$state/broker-$1.log"; fi; }

# The settings of node $2, whose port is $3; the ports of the others follow from that of the first, $4.
settings() {
    local home=$1 node=$2 port=$3 first=$4 guarded='' voters='' replicas=1 insync=1
    if [[ -n ${REDRIVE_KAFKA_SECURE:-} ]]; then
        guarded=SASL_SSL://127.0.0.1:$((port - 6000)),SASL_PLAINTEXT://127.0.0.1:$((port - 7000))
    fi
    for other in $(seq "$nodes"); do
        voters+=${voters:+,}$other@127.0.0.1:$((first + 6000 + other))
    done
    if ((nodes >= 3)); then
        replicas=3 insync=2
    fi
    cat <<-CONF
		process.roles=broker,controller
		node.id=$node
		controller.quorum.voters=$voters
		controller.listener.names=CONTROLLER
		listeners=PLAINTEXT://127.0.0.1:$port,CONTROLLER://127.0.0.1:$((first + 6000 + node))${guarded:+,$guarded}
		advertised.listeners=PLAINTEXT://127.0.0.1:${REDRIVE_KAFKA_ADVERTISED:-$port}${guarded:+,$guarded}
		listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL_SSL:SASL_SSL,SASL_PLAINTEXT:SASL_PLAINTEXT
		log.dirs=$home/data
		# Topics are made by whoever needs them, never by a typing error.
		auto.create.topics.enable=false
		# As many copies as there are nodes for, and few partitions, so that it is up quickly.
		default.replication.factor=$replicas
		min.insync.replicas=$insync
		offsets.topic.replication.factor=$replicas
		offsets.topic.num.partitions=4
		transaction.state.log.replication.factor=$replicas
		transaction.state.log.min.isr=$insync
		transaction.state.log.num.partitions=4
		share.coordinator.state.topic.replication.factor=$replicas
		share.coordinator.state.topic.min.isr=$insync
		share.coordinator.state.topic.num.partitions=1
		# Tests shall not wait for defaults that are made for production.
		group.initial.rebalance.delay.ms=0
		broker.session.timeout.ms=4000
		broker.heartbeat.interval.ms=500
		group.min.session.timeout.ms=500
		transaction.abort.timed.out.transaction.cleanup.interval.ms=500
		log.cleaner.backoff.ms=2000
	CONF
    if [[ -n ${REDRIVE_KAFKA_SECURE:-} ]]; then
        cat <<-CONF
			authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
			super.users=User:ANONYMOUS
			allow.everyone.if.no.acl.found=true
		CONF
    fi
    [[ -z ${REDRIVE_KAFKA_EXTRA:-} ]] || printf '%s\n' "$REDRIVE_KAFKA_EXTRA"
}

# A certificate for the two guarded listeners and a password, made anew for every cluster.
secrets() {
    local store=$1 port=$2 password
    mkdir -p "$state/secure"
    password=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
    printf '%s\n' "$password" >"$state/secure/password"
    echo redrive >"$state/secure/user"
    echo "127.0.0.1:$((port - 6000))" >"$state/secure/sasl_ssl"
    echo "127.0.0.1:$((port - 7000))" >"$state/secure/sasl_plaintext"
    rm -f -- "$store"
    # keytool comes with java.
    keytool -genkeypair -alias broker -keyalg EC -groupname secp256r1 -dname CN=127.0.0.1 -ext san=ip:127.0.0.1 -validity 30 \
        -storetype PKCS12 -keystore "$store" -storepass "$password" >"$log" 2>&1 </dev/null
    keytool -exportcert -rfc -alias broker -keystore "$store" -storepass "$password" >"$state/secure/ca.pem" 2>>"$log" </dev/null
}

# What the two guarded listeners need besides.
secure() {
    local store=$1 password
    password=$(cat "$state/secure/password")
    cat <<-CONF
		listener.name.sasl_ssl.ssl.keystore.type=PKCS12
		listener.name.sasl_ssl.ssl.keystore.location=$store
		listener.name.sasl_ssl.ssl.keystore.password=$password
		listener.name.sasl_ssl.ssl.key.password=$password
		listener.name.sasl_ssl.sasl.enabled.mechanisms=SCRAM-SHA-512
		listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
		listener.name.sasl_plaintext.sasl.enabled.mechanisms=PLAIN,OAUTHBEARER
		listener.name.sasl_plaintext.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required user_redrive="$password";
		# Kafka's own validator of unsigned tokens: any that has not expired lets its subject in.
		listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config=org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="broker";
	CONF
}

answers() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

class_path() { printf '%s/*' "$jars"; }

# Starts node $1.
launch() {
    local node pid
    node=$(node_home "$1")
    : >"$(node_log "$1")"
    # The lock is not passed on, or it would be held as long as the broker lives.
    env -C / setsid java "-Xmx$heap" -Xms128m -XX:+ExitOnOutOfMemoryError -cp "$(class_path)" kafka.Kafka "$node/server.properties" \
        >>"$(node_log "$1")" 2>&1 </dev/null 9>&- &
    pid=$!
    disown "$pid"
    echo "$pid" >"$node/pid"
}

# Waits until node $1 answers. Fails when its process ends or two minutes have passed.
await() {
    local pid port
    port=$(port_of "$1")
    pid=$(cat "$(node_home "$1")/pid")
    for _ in $(seq 1200); do
        # The port opens when the broker is ready to answer, not before.
        if answers "$port" && [[ -n $(broker_pid "$1") ]]; then return 0; fi
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

# Sends node $1 the signal $2 and waits until its process is gone.
stop_node() {
    local pid signal=${2:-TERM}
    pid=$(broker_pid "$1")
    [[ -n $pid ]] || return 0
    kill "-$signal" "$pid"
    # One that was frozen hears nothing else.
    kill -CONT "$pid" 2>/dev/null || true
    for turn in $(seq 300); do
        [[ -n $(broker_pid "$1") ]] || { say "stopped process $pid"; return 0; }
        # A broker may wait for others that are gone; there is nothing worth waiting for.
        ((turn != 100)) || kill -KILL "$pid" 2>/dev/null || true
        sleep 0.1
    done
    die "process $pid does not stop"
}

stop_all() {
    local node
    for node in $(all_nodes); do
        stop_node "$node" "${1:-TERM}"
    done
}

# Starts nodes again, on their ports with their data.
start_nodes() {
    local node
    for node in "$@"; do
        [[ -z $(broker_pid "$node") ]] || continue
        # A process that was killed keeps its sockets for a moment.
        for _ in $(seq 50); do
            answers "$(port_of "$node")" || break
            sleep 0.1
        done
        launch "$node"
    done
    for node in "$@"; do
        await "$node" || die "node $node did not come back: $(tail -n 5 "$(node_log "$node")")"
    done
}

# Writes the settings of all nodes for the first port $2 and formats their storage.
prepare() {
    local home=$1 first=$2 id=$3 node scram=()
    rm -rf -- "$home"/node-*
    [[ -z ${REDRIVE_KAFKA_SECURE:-} ]] || secrets "$home/keys.p12" "$first" || die "no certificate: $(tail -n 3 "$log")"
    for number in $(seq "$nodes"); do
        node=$home/node-$number
        mkdir -p "$node"
        echo "127.0.0.1:$((first + number - 1))" >"$node/address"
        settings "$node" "$number" "$((first + number - 1))" "$first" >"$node/server.properties"
        if [[ -n ${REDRIVE_KAFKA_SECURE:-} ]]; then
            secure "$home/keys.p12" >>"$node/server.properties"
            scram=(--add-scram "SCRAM-SHA-512=[name=redrive,password=$(cat "$state/secure/password")]")
        fi
        java -cp "$(class_path)" kafka.tools.StorageTool format -t "$id" -c "$node/server.properties" "${scram[@]}" >"$log" 2>&1 </dev/null \
            || die "the storage cannot be formatted: $(tail -n 3 "$log")"
    done
}

up() {
    if runs && [[ -s $address_file ]]; then
        say "already running"
        cat "$address_file"
        return
    fi
    down
    fetch_jars
    local home port id node failed
    home=$(mktemp -d "${TMPDIR:-/tmp}/redrive-kafka.XXXXXXXX")
    echo "$home" >"$home_file"
    id=$(java -cp "$(class_path)" kafka.tools.StorageTool random-uuid 2>/dev/null)
    # Binding is the only test of a free port without a race, so the brokers themselves try; below the range from which the
    # system hands out ports for outgoing connections.
    for _ in $(seq 10); do
        port=${REDRIVE_KAFKA_PORT:-$((20000 + RANDOM % 5990))}
        prepare "$home" "$port" "$id"
        failed=
        for node in $(seq "$nodes"); do
            # Somebody else's server would answer on a taken port and look like ours.
            if answers "$(port_of "$node")"; then failed=1; else launch "$node"; fi
        done
        for node in $(seq "$nodes"); do
            [[ -n $failed ]] || await "$node" || failed=1
        done
        if [[ -z $failed ]]; then
            cat "$home"/node-*/address | paste -sd, >"$address_file"
            say "started Apache Kafka $version: $nodes node(s) from port $port"
            cat "$address_file"
            return
        fi
        stop_all KILL
        [[ -z ${REDRIVE_KAFKA_PORT:-} ]] || break
    done
    say "$(tail -n 5 "$log")"
    remove_home
    die "the broker did not start"
}

down() {
    stop_all KILL
    remove_home
}

is_up() { [[ -s $address_file ]] || die "not running; run scripts/kafka.sh up"; }

restart() {
    is_up
    stop_all "${1:+KILL}"
    # shellcheck disable=SC2046 # one word for each node
    start_nodes $(all_nodes)
    say "restarted"
    cat "$address_file"
}

# One node: $2 is its number.
one() {
    is_up
    local node=${2:-}
    [[ -n $(node_home "${node:-0}") ]] || die "which node? $(all_nodes | paste -sd ' ')"
    case $1 in
    stop) stop_node "$node" ;;
    kill) stop_node "$node" KILL ;;
    start) start_nodes "$node" ;;
    freeze) kill -STOP "$(broker_pid "$node")" ;;
    thaw) kill -CONT "$(broker_pid "$node")" ;;
    esac
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
    kafka-console-share-consumer.sh) class=org.apache.kafka.tools.consumer.ConsoleShareConsumer ;;
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
stop | kill | start | freeze | thaw) locked one "$1" "${2:-}" ;;
jars) locked fetch_jars ;;
run) shift && tool "$@" ;;
status)
    runs && [[ -s $address_file ]] || die "not running; run scripts/kafka.sh up"
    cat "$address_file"
    ;;
*)
    sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}" >&2
    exit 2
    ;;
esac
