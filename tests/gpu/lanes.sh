#!/usr/bin/env bash
# What lanes must show, within 10 minutes: lanes.sh BUILD. Run it under mps.sh. Exit 77: no GPU.
# Random and published schedules, and synthesized ones for six machines and five collectives, give the right data: ranks as threads
# and as processes, and with one thread block per rank. Then the figures of schedule_perf.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
# shellcheck source=tests/support/skip.sh
source tests/support/skip.sh
nvidia-smi -L >/dev/null 2>&1 || skip gpu "no GPU here"
bin=$1/bin
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0
: >"$work/right"

# run WHAT SCHEDULE SIZE OPTIONS...: one schedule, and whether its data is right. Two at once: they mostly begin and end.
run() {
  while (($(jobs -rp | wc -l) >= 2)); do wait -n; done
  run_one "$@" &
}
run_one() {
  local what=$1 schedule=$2 size=$3 answer
  shift 3
  # (Each leaves thread blocks to the other.)
  if answer=$(WEFT_BLOCK_SHARE=50 timeout 60 "$bin/weft" run "$schedule" --size "$size" --gpu --json "$@" 2>&1 </dev/null) &&
    grep -q '"wrong":0[,}]' <<<"$answer"; then
    echo "$what $schedule" >>"$work/right"
  else
    echo "FAILED: $what, $(basename "$schedule"), $size: $answer" | tee -a "$work/failed"
  fi
}

"$bin/test_gpu" --gtest_filter='Schedules.*' --gtest_brief=1 || failed=$((failed + 1))
echo "$SECONDS s: tests of schedules"

for machine in dgx1v ndv2x2 dgx2 dgx-a100x2 dgx-h100x2 mi250; do
  for collective in all_gather reduce_scatter all_reduce broadcast alltoall; do
    schedule=$work/$machine-$collective.json
    if ! "$bin/weft" synth "$machine" --gpus --coll "$collective" --size 64M -o "$schedule" >/dev/null; then
      failed=$((failed + 1))
      continue
    fi
    run threads "$schedule" 1M
    NCCL_MAX_CTAS=1 run "one block" "$schedule" 200K
    run processes "$schedule" 1M --ranks-as process
  done
  echo "$SECONDS s: $machine"
done

published=../shared/schedules
if [[ -d $published ]]; then
  while read -r schedule; do
    options=()
    [[ $schedule != *-no-coll-* ]] || options=(--coll all_gather)
    "$bin/weft" verify "$schedule" "${options[@]}" >/dev/null 2>&1 || continue  # one is racy
    run threads "$schedule" 1M "${options[@]}"
    run processes "$schedule" 1M --ranks-as process "${options[@]}"
  done < <(find "$published/" -name '*.xml' -o -name '*.json' | sort)
  echo "$SECONDS s: published schedules"
fi

wait
touch "$work/failed"
right=$(wc -l <"$work/right") failed=$((failed + $(grep -c ^FAILED "$work/failed")))
"$bin/schedule_perf" ring:all_gather:2 ring:all_gather:8 ring:all_reduce:8 ring:reduce_scatter:8 "$work"/{dgx1v,mi250,dgx2}-all_{gather,reduce}.json \
  "$work"/dgx2-reduce_scatter.json --sizes 8K,4M,64M,256M || failed=$((failed + 1))
"$bin/schedule_perf" ring:broadcast:2 --blocks 1 --sizes 8K,256K,16M || failed=$((failed + 1))
echo "$right runs right, $failed failed, $SECONDS s"
exit $((failed > 0))
