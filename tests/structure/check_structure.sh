#!/bin/bash
# Checks the laws of the tree: the includes that a folder may have, the places of CUDA headers and extern "C", class names.
# usage: check_structure.sh REPOSITORY_ROOT; prints one line per violation, exits 1 if there are any.
set -u
root=$1
cd "$root" || exit 2

files=$(find src algorithms include plugins perf tests \
  -type f \( -name '*.h' -o -name '*.cc' -o -name '*.c' -o -name '*.cuh' -o -name '*.cu' -o -name '*.inc' \) 2>/dev/null | sort)
[ -n "$files" ] || { echo "no sources under $root"; exit 2; }

# shellcheck disable=SC2016
awk_program='
BEGIN {
  # The arrows of docs/architecture.md. A folder may include all folders that it reaches along them.
  arrows = "api>comm comm>planner comm>exec workload>planner planner>algorithms algorithms>simulator simulator>topology " \
           "simulator>schedule exec>schedule exec>transport topology>base schedule>base transport>base"
  n = split(arrows, list, " ")
  for (i = 1; i <= n; i++) { split(list[i], ends, ">"); may[ends[1], ends[2]] = 1; known[ends[1]] = known[ends[2]] = 1 }
  for (k in known) for (i in known) for (j in known) if (((i, k) in may) && ((k, j) in may)) may[i, j] = 1
  for (k in known) if (k != "api") may["tools", k] = 1
  known["tools"] = 1
  # Plugins are apart from the library. This lists the parts of it, and the other plugins, that each may include.
  split("plugins/common>transport plugins/net_socket>transport plugins/net_verbs>transport " \
        "plugins/solver_cbc>algorithms plugins/synthesis>algorithms", list, " ")
  for (i in list) {
    split(list[i], ends, ">")
    known[ends[1]] = may[ends[1], ends[2]] = 1
    for (k in known) if ((ends[2], k) in may) may[ends[1], k] = 1
  }
  may["plugins/net_socket", "plugins/common"] = may["plugins/net_verbs", "plugins/common"] = 1
  # The built-in network.
  built_in = "plugins/net_socket/plugin.h"
}

function module(path,   parts) {
  split(path, parts, "/")
  if (parts[1] == "src") return parts[2]
  if (parts[1] == "plugins") return parts[1] "/" parts[2]
  return parts[1]
}

# Removes comments and keeps strings: extern "C" has one.
function strip(line,   at) {
  out = ""
  while (line != "") {
    if (in_comment) {
      at = index(line, "*/")
      if (!at) return out
      in_comment = 0
      line = substr(line, at + 2)
    } else if (match(line, /\/\/|\/\*/)) {
      out = out substr(line, 1, RSTART - 1)
      if (substr(line, RSTART, 2) == "//") return out
      in_comment = 1
      line = substr(line, RSTART + 2)
    } else {
      return out line
    }
  }
  return out
}

function violation(text) { printf "%s:%d: %s\n", FILENAME, FNR, text; bad++ }

FNR == 1 {
  in_comment = 0
  begun = member = 0
  from = module(FILENAME)
  free = from == "tests" || from == "perf" || from == "include"
  if (FILENAME ~ /^src\// && !(from in known)) violation("src/" from " is not a folder of the design")
  if (FILENAME ~ /^plugins\// && !(from in known)) violation(from " is not a folder of the design")
}

{
  code = strip($0)
  if (match(code, /^[ \t]*#[ \t]*include[ \t]*["<][^">]+[">]/) && (code ~ /"/ || code ~ /<(src|algorithms|plugins|tests|perf)\//)) {
    path = code
    sub(/^[^"<]*["<]/, "", path)
    sub(/[">].*/, "", path)
    if (path ~ /^(src|algorithms|plugins)\// && from == "include") {
      violation("include may not include " path)
    } else if (path ~ /^(src|algorithms|plugins)\//) {
      to = module(path)
      if (!free && from != to && !((from, to) in may) && !(from == "comm" && path == built_in))
        violation(from " may not include " path)
      if (FILENAME ~ /^src\/exec\// && FILENAME !~ /^src\/exec\/cuda\// && path ~ /^src\/exec\/cuda\//)
        violation("src/exec may not include " path)
    } else if (path ~ /^(tests|perf)\// && from != "tests" && from != "perf") {
      violation(from " may not include " path)
    } else if (!free && path !~ /^(include\/)?(nccl|nccl_device|weft)\.h$/) {
      violation("write \"" path "\" from the repository root")
    }
  }
  if (code ~ /^[ \t]*#[ \t]*include[ \t]*<cuda/ && FILENAME !~ /^(src\/exec\/cuda|perf|include|tests)\//)
    violation("CUDA headers belong into src/exec/cuda and perf")
  if (code ~ /extern[ \t]*"C"/ && FILENAME !~ /^(src\/api|include|plugins|tests|perf)\//)
    violation("extern \"C\" belongs into src/api")
  # Programs with more rights than their user must not follow the environment of that user.
  if (code ~ /(^|[^A-Za-z0-9_])getenv[ \t]*\(/ && FILENAME ~ /^(src|plugins)\// && FILENAME != "src/base/variables.cc")
    violation("plain getenv: a Config member, or secure_getenv for variables of other software")
  if (match(code, /(^|[^A-Za-z0-9_])(class|struct)[ \t]+[A-Za-z0-9_]*(Manager|Helper|Util|Utils)([^A-Za-z0-9_]|$)/))
    violation("a class with a name that says nothing: " substr(code, RSTART, RLENGTH))
}

# Functions stay short; tables (= {) may be long. Code is formatted: a function at namespace level begins and ends in
# column 0, a member function in column 2.
{
  code_only = code
  sub(/[ \t]+$/, "", code_only)
  table = code_only ~ /= ?\{/
  if (table && code_only !~ /^[ \t]/) begun = 0
  if (code_only ~ /= ?\{$/) opened = FNR
  if (opened && code_only ~ /^[ \t]*\};$/) { skipped += FNR - opened; opened = 0 }
  if (!table && !begun && code_only ~ /^[A-Za-z_~].*[^;}]$/ && code_only !~ /;/ &&
      code_only !~ /^(namespace|struct|class|enum|union|extern|template|using|typedef|public|private|protected)/) { begun = FNR; skipped = opened = 0 }
  if (!table && code_only ~ /^  [A-Za-z_~].*\{$/ && code_only !~ /^  (struct|class|enum|union|if|for|while|switch|else|do|try|return)/) { member = FNR; if (!begun) skipped = opened = 0 }
  if (code_only ~ /^}/) { too_long(begun); begun = member = 0 }
  if (code_only ~ /^  }/) { too_long(member); member = 0 }
}

function too_long(from_line) {
  length_now = FNR - from_line + 1 - skipped
  if (from_line && length_now > 80) violation("a function of " length_now " lines; 80 at most")
}

END { exit bad > 0 }
'
# Files stay small: the median of all, and the class that once held everything.
# shellcheck disable=SC2086
median=$(wc -l $files | awk '$2 != "total" { print $1 }' | sort -n | awk '{ n[NR] = $1 } END { print n[int((NR + 1) / 2)] }')
if [ "$median" -gt 100 ]; then echo "the median file has $median lines; 100 at most"; exit 1; fi
communicator=src/comm/communicator.h
if [ -e $communicator ]; then
  lines=$(wc -l <$communicator) members=$(awk '/^class Communicator/ { on = 1 } on && !/return/ && /^  [^ ].* [a-z_]+_(\{.*\})?;/' $communicator | wc -l)
  if [ "$lines" -gt 120 ] || [ "$members" -gt 15 ]; then
    echo "$communicator has $lines lines and $members members; 120 and 15 at most"
    exit 1
  fi
fi

# shellcheck disable=SC2086
if awk "$awk_program" $files; then
  echo "OK: $(wc -w <<<"$files") files keep to the structure"
else
  exit 1
fi
