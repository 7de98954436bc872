# Installs what is missing, with apt: sourced by prompts/demo.sh and tests/run.sh.
# install_packages PACKAGE... does nothing where all are there, so an ordinary user needs no rights then.

install_packages() {
    missing=""
    for package in "$@"; do
        dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q "install ok installed" ||
            missing="$missing $package"
    done
    [ -z "$missing" ] && return 0
    as_root=""
    if [ "$(id -u)" -ne 0 ]; then
        command -v sudo >/dev/null 2>&1 || {
            echo "These packages are missing and need root to install:$missing" >&2
            return 1
        }
        as_root="sudo"
    fi
    echo "Installing:$missing" >&2
    $as_root apt-get update -qq || echo "The package lists could not be renewed; going on with the old ones." >&2
    # shellcheck disable=SC2086
    $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq $missing >&2
}

# What the program is built with; what its tests need on top.
BUILD_PACKAGES="g++ meson ninja-build pkg-config libfmt-dev libcli11-dev libsentencepiece-dev nlohmann-json3-dev libhwy-dev libutf8proc-dev libpcre2-dev libedit-dev"
TEST_PACKAGES="libgtest-dev libboost-context-dev mandoc mold"
