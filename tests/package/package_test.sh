#!/usr/bin/env bash
# The installed files work from any folder on a system with only the C library: package_test.sh BUILD_FOLDER|TARBALL DLOPEN_SMOKE
set -euo pipefail
# shellcheck source=tests/support/skip.sh
source "$(dirname "${BASH_SOURCE[0]}")/../support/skip.sh"
from=$1 smoke=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "FAILED: $*"; exit 1; }

# An empty system with our files in an arbitrary folder.
here=some/where/else
mkdir -p "$work/root/$here" "$work/root/tmp" "$work/root/dev" "$work/root/proc"
if [[ -d $from ]]; then
  cmake --install "$from" --prefix "$work/root/$here" >"$work/log" || { cat "$work/log"; fail "it does not install"; }
else
  tar -xzf "$from" -C "$work/root/$here" --strip-components=1
fi
root=$work/root/$here
# The version of the build, in the name of a tarball, is what the header and the changelog say.
if [[ -d $from ]]; then
  version=$(sed -n 's/^CMAKE_PROJECT_VERSION:STATIC=//p' "$from/CMakeCache.txt")
else
  version=${from##*/weft-} version=${version%%-*}
fi
grep -qF "WEFT_VERSION_STRING \"$version\"" "$root/include/weft.h" || fail "include/weft.h does not say $version"
grep -qE "^## ${version//./\\.} \([0-9]{4}-[0-9]{2}-[0-9]{2}\)$" "$root/share/doc/weft/CHANGELOG.md" ||
  fail "CHANGELOG.md has no dated section for $version"
for file in lib/libnccl.so.2 lib/libnccl.so include/nccl.h include/nccl_device.h include/nccl_device_kernels.h include/weft.h bin/weft lib/plugins/libnccl-net-weft-socket.so \
  lib/plugins/libweft-synthesis.so share/weft/machines/dgx1v.json share/doc/weft/README.md; do
  [[ -e $root/$file ]] || fail "there is no $file"
done

needs() { readelf -d "$1" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p'; }
system='^(lib(c|m|dl|pthread|rt)\.so\.[0-9]+|ld-linux.*)$'
for file in "$root"/lib/libnccl.so.2 "$root"/lib/plugins/libnccl-net-*.so "$root"/lib/plugins/libweft-synthesis.so; do
  foreign=$(needs "$file" | grep -vE "$system" || true)
  [[ -z $foreign ]] || fail "${file##*/} needs" $foreign
done
for needed in $(needs "$root/bin/weft"); do
  [[ $needed =~ $system || -e $root/lib/weft/$needed ]] || fail "weft needs $needed, which is not in the package"
done
# No file may name a path of the build machine: it exists nowhere else.
for file in "$root"/lib/*.so* "$root"/lib/plugins/*.so "$root"/bin/*; do
  path=$(readelf -d "$file" | sed -n 's/.*\(RPATH\|RUNPATH\).*\[\(.*\)\]/\2/p' | tr : '\n' | grep -v '^\$ORIGIN' || true)
  [[ -z $path ]] || fail "${file##*/} looks for libraries in" $path
done
symbols() { nm -D --defined-only "$1" | awk '{ print $NF }' | grep -vE "$2" || true; }
foreign=$(symbols "$root/lib/libnccl.so.2" '^(nccl|pnccl|weft)')
[[ -z $foreign ]] || fail "libnccl.so.2 exports" $foreign
for file in "$root"/lib/plugins/libnccl-net-*.so; do
  foreign=$(symbols "$file" '^(ncclNetPlugin_v[0-9]+|ncclCollNetPlugin_v[0-9]+|weft.*)$')
  [[ -z $foreign ]] || fail "${file##*/} exports" $foreign
done

# Only the C library is there, so that any other need shows.
loader=$(readelf -l "$smoke" | sed -n 's/.*interpreter: \(.*\)\]/\1/p')
mkdir -p "$work/root${loader%/*}" "$work/root/bin" "$work/root/lib/plain"
cp -L "$loader" "$work/root$loader"
for library in libc.so.6 libm.so.6 libdl.so.2 libpthread.so.0 librt.so.1; do
  path=$(ldconfig -p | awk -v name="$library" '$1 == name && !seen++ { print $NF }')
  [[ -z $path ]] || cp -L "$path" "$work/root/lib/plain/"
done
cp "$smoke" "$work/root/bin/smoke"
if ((EUID == 0)); then
  enter=("$(command -v chroot)" "$work/root")
elif unshare -r true 2>/dev/null; then
  enter=("$(command -v unshare)" -r "$(command -v chroot)" "$work/root")
else
  skip chroot "neither root nor user namespaces: what the files need was read, they were not run"
fi
# There is no /proc, from which the loader learns a program's folder.
inside() { env -i LD_ORIGIN_PATH="/$here/bin" LD_LIBRARY_PATH=/lib/plain HOME=/tmp WEFT_HOST_MODE=1 "${enter[@]}" "$@"; }
for file in libnccl.so.2 plugins/libnccl-net-weft-socket.so plugins/libweft-synthesis.so; do
  inside "$loader" --list "/$here/lib/$file" >/dev/null || fail "the loader cannot load $file"
done
inside /bin/smoke "/$here/lib/libnccl.so.2" || fail "a program cannot use libnccl.so.2"
said=$(inside "/$here/bin/weft" --version) || fail "weft --version does not run"
[[ $said == "weft $version" ]] || fail "weft says it is '$said', not weft $version"
inside "/$here/bin/weft" topo dgx1v >/dev/null || fail "weft does not run"
inside "/$here/bin/weft" bound dgx1v --coll all_gather --json | grep -q algbw_gbps || fail "weft bound does not answer"
inside "/$here/bin/weft" env >/dev/null || fail "weft env does not run"

# The library looks at the host through the hwloc that the package carries. (A build may have none.)
carried=$root/lib/weft/libhwloc.so.15
if [[ ! -d $from ]] || grep -q '^HWLOC_FOUND:INTERNAL=1' "$from/CMakeCache.txt"; then
  [[ -e $carried ]] || fail "the package has no hwloc"
  # A rank alone looks at its host only to write it down.
  NCCL_TOPO_DUMP_FILE="$work/host.xml" WEFT_HOST_MODE=1 LD_DEBUG=files LD_DEBUG_OUTPUT="$work/loads" "$smoke" "$root/lib/libnccl.so.2" >/dev/null ||
    fail "a program cannot use libnccl.so.2 outside of the empty system"
  grep -qF "calling init: $(realpath "$root")/lib/weft/libhwloc.so.15" "$work"/loads.* || { grep hwloc "$work"/loads.*; fail "the hwloc of the package is not loaded"; }
fi
echo "OK: $(du -sk "$root" | cut -f1) KiB, runs where only the C library is"
