// The file of -J: the same results for other programs, in the layout of nccl-tests' JSON version 3.
#pragma once

#include <string>
#include <vector>

#include "perf/common/json_writer.h"
#include "perf/common/report.h"

namespace weft::perf {

class JsonReport {
 public:
  JsonReport(const Options& options, int argc, char** argv, int library_version,
             const std::vector<DeviceLine>& devices);

  void add(const Row& row);
  // Ends the document and writes it. Returns the path.
  std::string write(const Totals& totals);

 private:
  void config(const std::vector<DeviceLine>& devices);

  const Options& options_;
  JsonWriter json_;
};

}  // namespace weft::perf
