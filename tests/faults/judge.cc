// See judge.h.
#include "tests/faults/judge.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <set>
#include <sstream>

namespace weft::test {
namespace {

// A record without the call and the rank that read it: "ncclAllReduce: rank 0 of 3: ...".
std::string without_reader(const std::string& record) {
  const size_t call = record.starts_with("nccl") ? record.find(": ") + 2 : 0;
  const size_t colon = record.find(": ", call), of = record.find(" of ", call);
  const bool named =
      record.compare(call, 5, "rank ") == 0 && colon != record.npos && of < colon && of < call + 10;
  return record.substr(named ? colon + 2 : call);
}

}  // namespace

void print_record(const std::string& name, ncclResult_t code, const std::string& text) {
  std::printf("RECORD %s %d %s\n", name.c_str(), code, without_reader(text).c_str());
}

std::string judge(const std::vector<ProcessResult>& results, const std::vector<int>& victims,
                  bool one_record, double& worst_s) {
  std::string wrong;
  // By communicator and text: who has read it.
  std::map<std::string, std::map<std::string, std::vector<size_t>>> records;
  for (size_t rank = 0; rank < results.size(); rank++) {
    const ProcessResult& result = results[rank];
    std::istringstream lines(result.output);
    std::string output;
    for (std::string line; std::getline(lines, line);) {
      if (line.starts_with("TOOK "))
        worst_s = std::max(worst_s, std::atof(line.c_str() + 5));
      else if (line.starts_with("RECORD "))
        records[line.substr(7, line.find(' ', 7) - 7)][line.substr(line.find(' ', 7) + 1)]
            .push_back(rank);
      else
        output += "    " + line + "\n";
    }
    const int number = static_cast<int>(rank);
    if (std::find(victims.begin(), victims.end(), number) != victims.end()) continue;
    if (result.hung || result.exit_code != 0)
      wrong += "  rank " + std::to_string(rank) +
               (result.hung          ? " hung"
                : result.signal != 0 ? " ended by signal " + std::to_string(result.signal)
                                     : "") +
               "\n" + output;
  }
  if (one_record)
    for (const auto& [name, texts] : records) {
      if (texts.size() == 1) continue;
      wrong += "  the ranks read different records of " + name + ":\n";
      for (const auto& [text, readers] : texts) {
        wrong += "    rank";
        for (const size_t reader : readers) wrong += " " + std::to_string(reader);
        wrong += ": " + text + "\n";
      }
    }
  return wrong;
}

}  // namespace weft::test
