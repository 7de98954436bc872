# Installs missing packages, with apt. Sourced by prompts/demo.sh, tests/run.sh, tests/deb.sh and tests/fresh.sh.

# Packages to build the program; packages for its tests; packages for the long form of the tests.
BUILD_PACKAGES="g++ meson ninja-build pkg-config libfmt-dev libcli11-dev libsentencepiece-dev nlohmann-json3-dev libhwy-dev libutf8proc-dev libpcre2-dev libedit-dev libxxhash-dev zlib1g-dev libzstd-dev libcurl4-openssl-dev libpng-dev libjpeg-dev libwebp-dev libgif-dev"
TEST_PACKAGES="libgtest-dev libboost-context-dev mandoc mold clang-format"
LONG_PACKAGES="clang-tidy"

# explain_failure LOG: prints to standard error what to do about the failed command whose output is in LOG.
explain_failure() {
    if grep -qi "no space left" "$1"; then
        echo "The disk is full ($(df -Pk . | awk 'END { printf "%d MB left on %s", $4 / 1024, $6 }')). Free some space and run this again." >&2
    elif grep -qiE "could not resolve|temporary failure|could not connect|unable to connect|network is unreachable|connection timed out" "$1"; then
        echo "The package server cannot be reached. Check the network (behind a proxy: http_proxy) and run this again." >&2
    elif grep -qiE "unable to locate package|has no installation candidate" "$1"; then
        echo "A package is missing from this system's package lists. Debian 12, Ubuntu 24.04 and newer have all of them (Ubuntu: in universe)." >&2
    elif grep -qiE "could not get lock|unable to acquire the dpkg|is locked by another" "$1"; then
        echo "Another program is installing packages. Run this again when it has finished." >&2
    elif grep -qiE "a password is required|a terminal is required|not in the sudoers|may not run" "$1"; then
        echo "sudo refused. Run the command above as root, and run this again." >&2
    elif grep -qiE "killed signal|virtual memory exhausted|cannot allocate memory|out of memory" "$1"; then
        echo "Out of memory. Close other programs, or compile one file at a time: NINJAFLAGS=-j1" >&2
    elif grep -qi "permission denied" "$1"; then
        echo "A file cannot be written. Was an earlier run made by another user? Then remove the folder build." >&2
    elif grep -qiE "packages? .* not found|dependency .* not found|not found: (no|NO)|dependency lookup for" "$1"; then
        echo "A library is missing. Debian packages of all of them: $BUILD_PACKAGES" >&2
    else
        echo "If the lines above do not help: remove the folder build and run this again." >&2
    fi
}

# install_packages PACKAGE...: does nothing if all are installed, so that an ordinary user needs no rights then.
install_packages() {
    if ! command -v dpkg-query >/dev/null 2>&1 || ! command -v apt-get >/dev/null 2>&1; then
        echo "This system has no apt: nothing is installed. Packages needed, by their Debian names: $*" >&2
        return 0
    fi
    missing=""
    for package in "$@"; do
        dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q "install ok installed" ||
            missing="$missing $package"
    done
    [ -z "$missing" ] && return 0
    as_root=""
    if [ "$(id -u)" -ne 0 ]; then
        if ! command -v sudo >/dev/null 2>&1; then
            echo "These packages are missing, and only root can install them:$missing" >&2
            echo "As root: apt-get install$missing" >&2
            return 1
        fi
        as_root="sudo"
        # Without a terminal no password can be typed.
        [ -t 0 ] || as_root="sudo -n"
    fi
    echo "Installing:$missing" >&2
    package_log=$(mktemp) || return 1
    package_start=$(date +%s)
    $as_root apt-get update -qq >"$package_log" 2>&1 </dev/null ||
        echo "The package lists could not be updated; the old ones are used." >&2
    # shellcheck disable=SC2086
    if $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing \
        >>"$package_log" 2>&1 </dev/null; then
        echo "Installed in $(($(date +%s) - package_start)) s" >&2
        rm -f "$package_log"
        return 0
    fi
    grep -vE "^(Get|Hit|Selecting|Preparing|Unpacking|Setting up|\(Reading)" "$package_log" | tail -n 15 >&2
    echo "The packages were not installed. The command was: ${as_root:+$as_root }apt-get install$missing" >&2
    explain_failure "$package_log"
    rm -f "$package_log"
    return 1
}
