// Fuzzes the reader of selection tables. What it takes can be asked for any size.
#include "src/planner/selection_table.h"
#include "tests/fuzz/wire_check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace weft;
  return test::check_text(data, size, [](const std::string& text) {
    const SelectionTable table = SelectionTable::decode(text);
    for (int kind = 0; kind < kCollectiveKinds; kind++)
      for (const uint64_t bytes : {uint64_t{0}, uint64_t{4096}, ~uint64_t{0}})
        table.choose(static_cast<CollectiveKind>(kind), bytes, bytes == 0);
    SelectionTable::decode(table.encode());
  });
}
