#!/bin/bash
# skip FEATURE REASON: ends with 77 (ctest's "skipped"), or with 1 if WEFT_REQUIRE names the feature. Test scripts source
# it. It also runs alone in place of a test that cannot be built here.
skip() {
  case ",${WEFT_REQUIRE:-}," in
    *",$1,"*) echo "FAILED: WEFT_REQUIRE names '$1', but: $2"; exit 1 ;;
  esac
  echo "SKIPPED: $2"
  exit 77
}
if [ "${BASH_SOURCE[0]}" = "$0" ]; then skip "$@"; fi
