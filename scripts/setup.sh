#!/usr/bin/env bash
# Installs the Debian packages that building and testing Talon needs. Idempotent, and silent when
# nothing is missing.
#   scripts/setup.sh [--lint] [--fuzz]    also what `make lint` or `make fuzz` needs
# TALON_SKIP_SETUP=1 skips it, for machines where the packages come from elsewhere.
set -euo pipefail

packages=(
  build-essential cmake ninja-build pkg-config python3
  libhwy-dev nlohmann-json3-dev libyaml-cpp-dev libcli11-dev libspdlog-dev libfmt-dev
  libpcre2-dev libutf8proc-dev libgtest-dev
)

fail() {
  echo "setup: $*" >&2
  exit 1
}

for option in "$@"; do
  case "$option" in
    --lint) packages+=(clang-format clang-tidy git) ;;
    --fuzz) packages+=(clang libclang-rt-dev) ;;
    *) fail "unknown option '$option' (known: --lint, --fuzz)" ;;
  esac
done

[[ "${TALON_SKIP_SETUP:-0}" == 1 ]] && exit 0
command -v dpkg-query >/dev/null && command -v apt-get >/dev/null ||
  fail "this system is not Debian-like (no dpkg or apt-get). Install the equivalents of:" \
    "${packages[*]}; then set TALON_SKIP_SETUP=1"

missing=()
for package in "${packages[@]}"; do
  state=$(dpkg-query --show --showformat='${db:Status-Status}' "$package" 2>/dev/null || true)
  # A package of several architectures reports one state after another.
  [[ "$state" == installed* ]] || missing+=("$package")
done
((${#missing[@]})) || exit 0

as_root=()
if ((EUID != 0)); then
  command -v sudo >/dev/null ||
    fail "not root and no sudo; run as root: apt-get install ${missing[*]}"
  as_root=(sudo)
fi

apt() {
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq \
    -o Acquire::Retries=3 -o DPkg::Lock::Timeout=300 "$@"
}

echo "setup: installing ${missing[*]}"
apt update || fail "apt-get update failed; missing packages: ${missing[*]}"
apt install -y --no-install-recommends "${missing[@]}" >/dev/null ||
  fail "apt-get could not install: ${missing[*]}"
