#!/bin/sh
# Installs the Debian packages that the build and its tests need, and those named as arguments, as root or through
# sudo. Nothing to do: silent.
set -eu

packages="g++ cmake ninja-build make pkg-config python3 curl ca-certificates
  nlohmann-json3-dev libcli11-dev libpcre2-dev libutf8proc-dev liblzma-dev libboost1.81-dev
  libgtest-dev $*"

missing=""
for package in $packages; do
  dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing="$missing $package"
done
[ -z "$missing" ] && exit 0

echo "installing:$missing"
sudo=""
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || { echo "install these as root:$missing" >&2; exit 1; }
  sudo=sudo
fi
# sudo drops the environment, hence env behind it
$sudo apt-get update -qq
# shellcheck disable=SC2086
$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing
