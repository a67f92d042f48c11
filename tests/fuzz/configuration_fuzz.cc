// Fuzzes configuration files: the lines, and what becomes of the values of known variables.
#include <stdlib.h>

#include "src/base/config.h"
#include "src/base/config_table.h"
#include "src/base/variables.h"
#include "tests/fuzz/wire_check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace weft;
  return test::check_text(data, size, [](const std::string& text) {
    const auto values = parse_conf(text);
    for (const ConfigVariable& row : config_variables()) {
      const auto it = values.find(row.name);
      if (it == values.end() || std::string_view(row.name) == "NCCL_CONF_FILE")
        unsetenv(row.name);
      else
        setenv(row.name, it->second.c_str(), 1);
    }
    setenv("NCCL_CONF_FILE", "/nonexistent", 1);
    const Config config = Config::from_environment();
    test::require(describe(config).size() == config_variables().size());
    config.require_valid();
  });
}
