#!/usr/bin/env bash
# docs/environment.md equals the output of `weft env --markdown`, and set variables show: env_test.sh WEFT ROOT [SANITIZER]
set -euo pipefail
weft=$1 root=$2 sanitizer=${3:-}
if ! diff -u "$root/docs/environment.md" <(env -i "$weft" env --markdown); then
  echo "FAILED: docs/environment.md is stale; write it anew: weft env --markdown >docs/environment.md"
  exit 1
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
printf '# ours\nNCCL_HOSTID = from the file\nNCCL_NET=two\n' >"$work/conf"
seen=$(NCCL_CONF_FILE=$work/conf NCCL_NET=one "$weft" env)
grep -qE '^NCCL_HOSTID +from the file ' <<<"$seen" || { echo "FAILED: the file is not read"; exit 1; }
grep -qE '^NCCL_NET +one ' <<<"$seen" || { echo "FAILED: the environment does not go before the file"; exit 1; }
# A set-user-id program ignores the environment.
other="$work/weft"
cp "$weft" "$other"
chmod 755 "$work"
if [[ $sanitizer == thread || $sanitizer == address ]]; then
  echo "not tested: set-user-id programs (addresses are always randomized, which TSan does not survive; ASan may not look for leaks)"
elif chown 65534 "$other" 2>/dev/null && chmod 4755 "$other" && [[ $(findmnt -no OPTIONS -T "$work") != *nosuid* ]]; then
  seen=$(NCCL_CONF_FILE=$work/conf NCCL_NET=one "$other" env)
  ! grep -qE 'from the file|^NCCL_NET +one ' <<<"$seen" || { echo "FAILED: a set-user-id program reads the environment"; exit 1; }
  grep -q '^NCCL_NET ' <<<"$seen" || { echo "FAILED: no variables: $seen"; exit 1; }
else
  echo "not tested: set-user-id programs (needs root, and a folder without nosuid)"
fi
echo OK
