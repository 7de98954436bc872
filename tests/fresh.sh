#!/bin/sh
# Runs the README's two commands on a system without anything installed: a bare root folder (debootstrap, minimal) with a clone
# of HEAD. Needs root, debootstrap, and the right to mount.
#   sh tests/fresh.sh              demo and tests from each of the three starts, the Debian package from the first, and --by-hand
#   sh tests/fresh.sh --demo       demo and Debian package from the first start
#   sh tests/fresh.sh --by-hand    the README's build by hand, its installation, and a build without optimisation, from the first start
#   sh tests/fresh.sh --image      the container image of minisgl(1): the RUN line of its Dockerfile, and the program after it
#   sh tests/fresh.sh START...     demo and tests from these starts:
#     nothing   a minimal system, as root; the Debian package that the demo's build makes (tests/deb.sh) is installed in another
#               bare root, where the program answers the demo's questions
#     gtest     the same with libgtest-dev, without the package
#     user      with every package installed, as an ordinary user without sudo
#   sh tests/fresh.sh --loaded     without a bare root: the suites that start threads, processes or terminals ten times beside six
#                                  busy processes and ten times on one processor, the others once, beside six; then all suites
#                                  under the address sanitizer beside six
# Prints the wall-clock and the processor seconds of each command. Exits with 1 if a command failed, with 77 and a reason if
# this machine cannot make a bare root.
set -u
cd "$(dirname "$0")/.." || exit 1
. tests/packages.sh

root=""
finish() { [ -z "$root" ] || rm -rf --one-file-system "$root"; }
trap finish EXIT
trap 'exit 1' HUP INT TERM
failures=0

usage() {
    sed -n '2,/^set -u/{s/^# \{0,1\}//;/^set -u/!p}' "$0" >&2
    exit 64
}

cannot() { echo "$1" >&2; exit 77; }

# timed NAME COMMAND...: runs a command and prints its time after its output. `times` counts the children of the shell that
# calls it, so each command has a shell of its own, and `times` is called there and not in a pipe.
timed() {
    name=$1
    shift
    spent=$(mktemp)
    (
        begun=$(date +%s)
        "$@"
        status=$?
        LC_ALL=C times >"$spent"
        processor=$(awk 'NR == 2 { split($1 "m" $2, t, /[ms]+/); printf "%d", 60 * (t[1] + t[3]) + t[2] + t[4] }' "$spent")
        echo "fresh: $name: ended with $status after $(($(date +%s) - begun)) s, $processor s of processor time"
        exit "$status"
    ) || failures=$((failures + 1))
    rm -f "$spent"
}

# package_source CODENAME: prints the package server of this machine's own lists.
package_source() {
    apt-get indextargets --format '$(CODENAME) $(REPO_URI) $(COMPONENT)' 'Identifier: Packages' |
        awk -v codename="$1" '$1 == codename && $3 == "main" { print $2; exit }'
}

# Makes $root/base, a minimal system of this machine's release.
make_base() {
    [ "$(id -u)" -eq 0 ] || cannot "a bare root needs root"
    command -v debootstrap >/dev/null 2>&1 || cannot "a bare root needs debootstrap"
    unshare -m sh -c 'mount -t tmpfs none /mnt' 2>/dev/null || cannot "mounts are not allowed here"
    distribution=$(. /etc/os-release && echo "${ID:-}")
    codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
    [ "$distribution" = debian ] || cannot "a bare root is made of Debian, and this system is $distribution"
    uri=$(package_source "$codename")
    [ -n "$uri" ] || cannot "the package lists name no server for $codename"
    root=$(mktemp -d) || exit 1
    chmod 755 "$root"
    debootstrap --variant=minbase "$codename" "$root/base" "$uri" >"$root/log" 2>&1 || {
        tail -n 5 "$root/log" >&2
        cannot "debootstrap failed"
    }
    apt-config dump | grep -iE '^Acquire::[a-z]+::proxy' >"$root/base/etc/apt/apt.conf.d/99proxy"
    cp -L /etc/resolv.conf /etc/hosts "$root/base/etc/" 2>/dev/null
    git clone -q --no-local . "$root/base/srv/minisgl" 2>"$root/log" || {
        cat "$root/log" >&2
        cannot "this folder cannot be cloned with git"
    }
    [ -d ../shared ] && mkdir "$root/base/srv/shared"
    return 0
}

# inside FOLDER USER COMMAND: runs a shell command in the clone there, with a clean environment. The mounts last as long as the
# command.
inside() {
    shared=$(cd ../shared 2>/dev/null && pwd)
    # shellcheck disable=SC2016
    unshare -m sh -c '
        mount -t proc proc "$1/proc" && mount --rbind /dev "$1/dev" && mount -t tmpfs tmpfs "$1/dev/shm" || exit 1
        [ -z "$4" ] || mount --bind "$4" "$1/srv/shared" || exit 1
        exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp MINISGL_BARE_ROOT=1 \
            chroot --userspec="$2" "$1" /bin/sh -c "cd /srv/minisgl && $3"' sh "$1" "$2" "$3" "$shared" </dev/null
}

# Installs the package of the bare root FOLDER in a bare root of its own, and runs the program and its manual from there.
install_package() {
    package=$(find "$1/srv/minisgl/build" -name 'minisgl_*.deb')
    cp -a "$root/base" "$root/package" || exit 1
    cp "$package" "$root/package/srv/minisgl.deb" || exit 1
    # shellcheck disable=SC2016
    inside "$root/package" 0:0 '
        export DEBIAN_FRONTEND=noninteractive
        apt-get update -qq >/dev/null && apt-get install -y -qq --no-install-recommends man-db /srv/minisgl.deb >/tmp/log 2>&1 || {
            tail -n 20 /tmp/log
            exit 1
        }
        minisgl --version &&
            man -w minisgl minisgl-run minisgl-models &&
            test -s /usr/share/bash-completion/completions/minisgl &&
            test "$(man minisgl | grep -c resume)" -gt 0 &&
            minisgl run --quiet -m tests/models/wren --file prompts/notes.jsonl >/tmp/rows &&
            test "$(wc -l </tmp/rows)" -eq 60 &&
            test "$(grep -cE "\"text\": (\"[^\"]*\").*\"expected\": \\1" /tmp/rows)" -eq 60'
    status=$?
    rm -rf --one-file-system "${root:?}/package"
    return $status
}

# answers_all PROGRAM: prints a command that is true if PROGRAM answers all of the demo's questions right.
answers_all() {
    printf '%s run --quiet --no-config -m tests/models/wren --file prompts/notes.jsonl >/tmp/rows && ' "$1"
    cat <<'END'
test "$(wc -l </tmp/rows)" -eq 60 && test "$(grep -cE '"text": ("[^"]*").*"expected": \1' /tmp/rows)" -eq 60
END
}

# Builds that no other test makes: each file compiled by itself, as the README says, installed; and without optimisation.
run_by_hand() {
    echo "== start: by hand"
    cp -a "$root/base" "$root/hand" || exit 1
    inside "$root/hand" 0:0 ". tests/packages.sh; install_packages \$BUILD_PACKAGES" || failures=$((failures + 1))
    timed "by hand: meson setup build && ninja -C build" inside "$root/hand" 0:0 "meson setup build >/tmp/log && ninja -C build >/tmp/log ||
        { tail -n 40 /tmp/log; exit 1; }"
    timed "by hand: meson install -C build" inside "$root/hand" 0:0 "meson install -C build >/tmp/log && test -s /usr/local/share/man/man1/minisgl.1 &&
        $(answers_all /usr/local/bin/minisgl)"
    timed "by hand: without optimisation" inside "$root/hand" 0:0 "meson setup build-debug --buildtype=debug >/tmp/log &&
        ninja -C build-debug src/cli/minisgl >/tmp/log && $(answers_all build-debug/src/cli/minisgl)"
    rm -rf --one-file-system "${root:?}/hand"
}

# The image's Dockerfile stands in minisgl(1). COPY puts this folder to the place that RUN names.
run_image() {
    echo "== start: image"
    run_line=$(sed -n 's/^RUN //p' man/minisgl.1)
    [ -n "$run_line" ] || { echo "man/minisgl.1 has no RUN line"; failures=$((failures + 1)); return; }
    cp -a "$root/base" "$root/image" || exit 1
    cp -a "$root/image/srv/minisgl" "$root/image/minisgl" || exit 1
    timed "image: $run_line" inside "$root/image" 0:0 "cd / && { $run_line; } >/tmp/log 2>&1 || { tail -n 40 /tmp/log; exit 1; }"
    timed "image: the program" inside "$root/image" 0:0 "test ! -e /minisgl/build && $(answers_all minisgl)"
    echo "fresh: image: $(du -smx "$root/image" | cut -f1) MB"
    rm -rf --one-file-system "${root:?}/image"
}

run_start() {
    echo "== start: $1"
    cp -a "$root/base" "$root/$1" || exit 1
    user=0:0
    case $1 in
    gtest) inside "$root/$1" 0:0 "apt-get install -y -qq libgtest-dev >/dev/null 2>&1" || failures=$((failures + 1)) ;;
    user)
        user=1000:1000
        inside "$root/$1" 0:0 ". tests/packages.sh; install_packages \$BUILD_PACKAGES \$TEST_PACKAGES" || failures=$((failures + 1))
        chown -R 1000:1000 "$root/$1/srv/minisgl"
        ;;
    esac
    timed "$1: sh prompts/demo.sh" inside "$root/$1" "$user" "sh prompts/demo.sh >/tmp/rows && test \$(wc -l </tmp/rows) -eq 60"
    if [ "$1" = nothing ]; then
        timed "$1: sh tests/deb.sh" inside "$root/$1" "$user" "sh tests/deb.sh"
        timed "$1: the package in a bare root" install_package "$root/$1"
    fi
    [ "$2" = demo ] || timed "$1: sh tests/run.sh" inside "$root/$1" "$user" "sh tests/run.sh"
    rm -rf --one-file-system "${root:?}/$1"
}

# repeat COUNT NAME COMMAND...: runs a suite COUNT times; its output is shown if it fails.
repeat() {
    count=$1 name=$2
    shift 2
    output=$(mktemp)
    for i in $(seq "$count"); do
        "$@" >"$output" 2>&1 && continue
        failures=$((failures + 1))
        grep -E "FAILED|Failure|ERROR" "$output" | head -n 20
        echo "fresh: $name failed in run $i of $count"
    done
    rm -f "$output"
    echo "fresh: $name: $count runs, $failures failures so far"
}

run_loaded() {
    threaded="base runtime batch chat cli faults"
    # shellcheck disable=SC2086
    install_packages $BUILD_PACKAGES $TEST_PACKAGES || exit 1
    # A separate build with all cases: the build of run.sh has a third of them.
    [ -f build-loaded/build.ninja ] ||
        meson setup build-loaded -Dtests=enabled -Dcuda=disabled -Dunity=on -Dunity_size=20 >/dev/null || exit 1
    ninja -C build-loaded >/dev/null || exit 1
    [ -f build-loaded-asan/build.ninja ] ||
        meson setup build-loaded-asan --buildtype=debug --optimization=1 -Db_lundef=false -Db_sanitize=address,undefined \
            -Dtests=enabled -Dcuda=disabled -Dunity=on -Dunity_size=20 "-Dcpp_args=['-g1','-D_GLIBCXX_ASSERTIONS']" >/dev/null || exit 1
    ninja -C build-loaded-asan >/dev/null || exit 1
    busy=""
    for _ in 1 2 3 4 5 6; do
        sh -c 'while :; do :; done' &
        busy="$busy $!"
    done
    # shellcheck disable=SC2064
    trap "kill $busy; finish" EXIT
    for suite in $threaded; do
        repeat 10 "$suite, six busy processes" meson test -C build-loaded --no-rebuild --suite "$suite" \
            --timeout-multiplier 10
    done
    # shellcheck disable=SC2046
    repeat 1 "the others, six busy processes" meson test -C build-loaded --no-rebuild $(printf -- '--no-suite %s ' $threaded) \
        --timeout-multiplier 10
    export ASAN_OPTIONS="detect_leaks=1:strict_string_checks=1:malloc_context_size=10"
    export UBSAN_OPTIONS="print_stacktrace=1:halt_on_error=1"
    repeat 1 "all under the address sanitizer, six busy processes" meson test -C build-loaded-asan --no-rebuild \
        --no-suite mutants --no-suite tidy --no-suite demo_script --no-suite gpu_code \
        --timeout-multiplier 10
    # shellcheck disable=SC2086
    kill $busy
    trap finish EXIT
    for suite in $threaded; do
        repeat 10 "$suite, one processor" taskset -c 0 meson test -C build-loaded --no-rebuild --suite "$suite" \
            --timeout-multiplier 10
    done
}

case ${1:-} in
--loaded) run_loaded ;;
--demo)
    make_base
    run_start nothing demo
    ;;
--by-hand)
    make_base
    run_by_hand
    ;;
--image)
    make_base
    run_image
    ;;
-*) usage ;;
*)
    [ $# -gt 0 ] && by_hand=no || by_hand=yes
    [ $# -gt 0 ] || set -- nothing gtest user
    for start in "$@"; do
        case $start in nothing | gtest | user) ;; *) usage ;; esac
    done
    make_base
    for start in "$@"; do run_start "$start" all; done
    [ $by_hand = no ] || run_by_hand
    ;;
esac
echo "fresh: $failures failures"
[ "$failures" -eq 0 ]
