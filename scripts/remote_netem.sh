#!/usr/bin/env bash
# `talon bench remote` over the kernel's own delays: workers in a network namespace of their own,
# `tc netem` on the pair of interfaces between. Needs root and the kernel's sch_netem.
#   scripts/remote_netem.sh PATH_OF_TALON [bench flags ...]
set -euo pipefail

usage="usage: scripts/remote_netem.sh PATH_OF_TALON [bench flags ...]"
talon=$(realpath "${1:?$usage}")
shift
cd "$(dirname "${BASH_SOURCE[0]}")/.."

[[ $EUID -eq 0 ]] || { echo "remote_netem: needs root, for network namespaces" >&2; exit 2; }
for tool in ip tc; do
  command -v "$tool" >/dev/null || { echo "remote_netem: needs $tool (iproute2)" >&2; exit 2; }
done

space=talon-netem-$$
here=tn$$a
there=tn$$b
workers=()
logs=$(mktemp -d)

clean_up() {
  for pid in "${workers[@]}"; do kill "$pid" 2>/dev/null || true; done
  ip link del "$here" 2>/dev/null || true
  ip netns del "$space" 2>/dev/null || true
  rm -rf "$logs"
}
trap clean_up EXIT

ip netns add "$space" ||
  { echo "remote_netem: this system does not allow network namespaces" >&2; exit 2; }
ip link add "$here" type veth peer name "$there" netns "$space"
ip addr add 198.18.0.1/30 dev "$here"
ip link set "$here" up
ip -n "$space" addr add 198.18.0.2/30 dev "$there"
ip -n "$space" link set "$there" up
ip -n "$space" link set lo up

# set_link MS LOSS_PERCENT: half of the round trip on each interface.
set_link() {
  local half
  half=$(awk -v ms="$1" 'BEGIN { printf "%.3f", ms / 2 }')
  tc qdisc replace dev "$here" root netem delay "${half}ms" loss "$2%" &&
    ip netns exec "$space" tc qdisc replace dev "$there" root netem delay "${half}ms" loss "$2%"
}
set_link 0 0 ||
  { echo "remote_netem: the kernel has no netem (sch_netem); use talon bench remote" >&2; exit 2; }

# start_worker NAME ARGUMENTS...: prints nothing, waits until it listens.
start_worker() {
  local log=$logs/$1
  shift
  ip netns exec "$space" "$talon" "$@" --host 198.18.0.2 --insecure 2>"$log" &
  workers+=($!)
  until grep -q '^listening on' "$log"; do
    kill -0 "${workers[-1]}" 2>/dev/null || { cat "$log" >&2; exit 1; }
    sleep 0.1
  done
}
start_worker target target-worker --port 50052
start_worker draft draft-worker --model models/tiny-draft --port 50051

for link in "0 0" "5 0" "20 0" "50 0" "100 0" "20 1"; do
  read -r rtt loss <<<"$link"
  set_link "$rtt" "$loss"
  echo "== round trip $rtt ms, loss $loss%"
  "$talon" bench remote --target-address 198.18.0.2:50052 --draft-address 198.18.0.2:50051 \
    --insecure --rtts-ms 0 --loss 0 "$@"
done
