#!/usr/bin/env bash
# weft run --gpu, ranks as threads and as processes: weft_run.sh WEFT FOLDER_OF_SCHEDULES. Run it under mps.sh. Exit 77: no GPU.
set -uo pipefail
# shellcheck source=tests/support/skip.sh
source "$(dirname "$0")/../support/skip.sh"
nvidia-smi -L >/dev/null 2>&1 || skip gpu "no GPU here"
weft=$1 schedules=$2
failed=0
for ranks in thread process; do
  for schedule in "$schedules"/*.xml; do
    case $schedule in *racy* | *no_coll*) continue ;; esac
    for size in 4 1000 1M; do
      answer=$(timeout 60 "$weft" run "$schedule" --size $size --gpu --ranks-as $ranks --json 2>&1) &&
        grep -q '^{"time_us":[0-9.e+]*,"wrong":0,' <<<"$answer" && continue
      echo "FAILED: weft run $schedule --size $size --gpu --ranks-as $ranks: $answer"
      failed=1
    done
  done
done
[ $failed = 0 ] && echo OK
exit $failed
