#!/usr/bin/env bash
# Brings the libraries of the full product to an x86_64 machine that can install nothing.
#   scripts/gpu_packages.sh fetch FILE     where Debian's packages can be had: writes FILE (tar.xz, 9 MB)
#   scripts/gpu_packages.sh unpack FILE    there, as root: unpacks it into /
# Seen on Ubuntu 24.04 with Debian 12's packages. OpenSSL and zlib themselves are left to the machine.
set -euo pipefail

packages=(
  libpcre2-dev libpcre2-8-0 libutf8proc-dev libutf8proc2 libhwy-dev libhwy1
  libcpp-httplib-dev libcpp-httplib0.11 prometheus-cpp-dev libprometheus-cpp-core1.0
  libprometheus-cpp-pull1.0 libcivetweb1 libcivetweb-dev libgrpc++-dev libgrpc-dev libgrpc++1.51
  libgrpc29 libprotobuf-dev libprotobuf32 libprotoc32 protobuf-compiler protobuf-compiler-grpc
  libabsl-dev libabsl20220623 libre2-dev libre2-9 libc-ares-dev libc-ares2 libssl-dev libbrotli1
  libbrotli-dev libupb-dev pybind11-dev
)

fetch() {
  work=$(mktemp -d)  # not local: removed at the end of the script
  trap 'rm -rf "$work"' EXIT
  if [[ $(dpkg --print-architecture) != amd64 ]] && ! dpkg --print-foreign-architectures | grep -q amd64; then
    dpkg --add-architecture amd64
    apt-get -qq update
  fi
  cd "$work"
  for package in "${packages[@]}"; do  # some are of no architecture
    apt-get -qq download "$package:amd64" 2>/dev/null || apt-get -qq download "$package"
  done
  local tree=$work/tree
  mkdir "$tree"
  for package in "$work"/*.deb; do dpkg -x "$package" "$tree"; done
  # Static libraries are large, and all but one come as shared ones too.
  find "$tree" -name '*.a' ! -name libupb.a -delete
  rm -rf "$tree"/usr/share/{doc,lintian,man}
  tar cJf "$1" -C "$tree" .
}

case "${1:-}" in
  fetch) fetch "$(realpath "$2")" ;;
  unpack)
    tar xJf "$2" -C / --no-same-owner --keep-directory-symlink
    ldconfig
    ;;
  *)
    sed -n '2,5s/^# \?//p' "$0" >&2
    exit 2
    ;;
esac
