#!/usr/bin/env bash
# Installs the Debian packages that building and testing Talon needs. Idempotent, and silent when
# nothing is missing.
#   scripts/setup.sh [--tests] [--python] [--lint] [--fuzz]    also what `make test`, `python`, `lint`
#                                                              or `fuzz` needs
# The packages of --tests are for tests of the server with the programs that people use it with; a
# test whose program cannot be installed is left out, and its name says so.
# TALON_SKIP_SETUP=1 skips it, for machines where the packages come from elsewhere.
set -euo pipefail

packages=(
  build-essential cmake ninja-build pkg-config python3
  libhwy-dev nlohmann-json3-dev libyaml-cpp-dev libcli11-dev libspdlog-dev libfmt-dev
  libpcre2-dev libutf8proc-dev libedit-dev libcpp-httplib-dev prometheus-cpp-dev libgtest-dev
  libgrpc++-dev libprotobuf-dev protobuf-compiler protobuf-compiler-grpc libopenmpi-dev openmpi-bin
)
wanted=()  # good to have

fail() {
  echo "setup: $*" >&2
  exit 1
}

for option in "$@"; do
  case "$option" in
    --tests)
      wanted+=(prometheus chromium python3-grpcio python3-protobuf haproxy openssl)
      wanted+=(pybind11-dev python3-dev python3-numpy python3-pytest python3-matplotlib)
      wanted+=(python3-jsonschema json-schema-test-suite)
      # Node.js from elsewhere often brings its own npm.
      command -v node >/dev/null || wanted+=(nodejs)
      command -v npm >/dev/null || wanted+=(npm)
      ;;
    --python) packages+=(pybind11-dev python3-dev python3-numpy python3-venv) ;;
    --lint) packages+=(clang-format clang-tidy git) ;;
    --fuzz) packages+=(clang libclang-rt-dev) ;;
    *) fail "unknown option '$option' (known: --tests, --python, --lint, --fuzz)" ;;
  esac
done

[[ "${TALON_SKIP_SETUP:-0}" == 1 ]] && exit 0
command -v dpkg-query >/dev/null && command -v apt-get >/dev/null ||
  fail "this system is not Debian-like (no dpkg or apt-get). Install the equivalents of:" \
    "${packages[*]}; then set TALON_SKIP_SETUP=1"

# missing_of NAME...: those that are not installed, one a line.
missing_of() {
  local package state
  for package in "$@"; do
    state=$(dpkg-query --show --showformat='${db:Status-Status}' "$package" 2>/dev/null || true)
    # A package of several architectures reports one state after another.
    [[ "$state" == installed* ]] || echo "$package"
  done
}
mapfile -t missing < <(missing_of "${packages[@]}")
mapfile -t missing_wanted < <(missing_of "${wanted[@]}")
((${#missing[@]} + ${#missing_wanted[@]})) || exit 0

as_root=()
if ((EUID != 0)); then
  command -v sudo >/dev/null ||
    fail "not root and no sudo; run as root: apt-get install ${missing[*]} ${missing_wanted[*]}"
  as_root=(sudo)
fi

apt() {
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq \
    -o Acquire::Retries=3 -o DPkg::Lock::Timeout=300 "$@"
}
install() { apt install -y --no-install-recommends "$@" >/dev/null; }

echo "setup: installing ${missing[*]} ${missing_wanted[*]}"
apt update || fail "apt-get update failed; missing packages: ${missing[*]} ${missing_wanted[*]}"
if ((${#missing[@]})); then
  install "${missing[@]}" || fail "apt-get could not install: ${missing[*]}"
fi
for package in "${missing_wanted[@]}"; do
  install "$package" || echo "setup: no $package here; the tests that need it are left out" >&2
done
