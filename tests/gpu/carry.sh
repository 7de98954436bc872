#!/bin/sh
# Copies the suite `gpu` of a build, the program, the libraries they need and a model into a folder that runs on a machine with a GPU and without these sources:
#   sh tests/gpu/carry.sh BUILD FOLDER [SHAPE.json...]       then, there:  sh FOLDER/run_gpu.sh [PART...]
# SHAPE.json: the config.json of a model whose speed is measured, with made-up weights, such as those of tests/bench/shapes.
# That machine needs a driver at least as new as the build's CUDA toolkit's major version, cuBLAS (libcublasLt.so.13 or .12), a C
# library at least as new as this machine's and, for the parts of its tools, compute-sanitizer.
set -eu
if [ $# -lt 2 ]; then
    echo "usage: sh tests/gpu/carry.sh BUILD FOLDER [SHAPE.json...]" >&2
    exit 64
fi
here=$(cd "$(dirname "$0")" && pwd)
build=$1 folder=$2
shift 2
if [ ! -x "$build/tests/gpu/test_gpu" ]; then
    echo "$build has no tests/gpu/test_gpu: configure it with -Dcuda=enabled and build that" >&2
    exit 66
fi
mkdir -p "$folder/bin" "$folder/lib" "$folder/models" "$folder/shapes"
for program in tests/gpu/test_gpu src/cli/minisgl; do
    if [ -x "$build/$program" ]; then
        cp -f "$build/$program" "$folder/bin/"
    else
        echo "not built, left out: $program" >&2
    fi
done
# All libraries that the loader finds, except the C library, which must match its loader.
for program in "$folder"/bin/*; do
    ldd "$program"
done | awk '$2 == "=>" && $3 ~ /^\// { print $3 }' | sort -u |
    grep -Ev '/(ld-linux[^/]*|lib(c|m|dl|rt|pthread|resolv|util))\.so[^/]*$' |
    while read -r library; do cp -fL "$library" "$folder/lib/"; done
cp -R "$here/../models/wren" "$folder/models/"
# The configuration of a model of each architecture; the suite makes up its weights.
for config in "$here"/../golden/models/*/config.json "$here"/../golden/pooling/*/config.json; do
    folder_of=$(dirname "$config")
    model=$(basename "$folder_of")
    case $folder_of in */pooling/*) model=pooling/$model ;; esac
    mkdir -p "$folder/golden/$model"
    cp -f "$config" "$folder/golden/$model/"
done
for shape in "$@"; do cp -f "$shape" "$folder/shapes/"; done
cp -f "$here/run_gpu.sh" "$folder/"
du -sh "$folder" | awk '{ print $1 " in " $2 }'
