#!/usr/bin/env bash
# docs/environment.md equals the output of `weft env --markdown`, and set variables show: env_test.sh WEFT ROOT
set -euo pipefail
weft=$1 root=$2
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
echo OK
