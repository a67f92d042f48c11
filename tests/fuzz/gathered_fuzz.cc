// Fuzzes what ranks gather over control connections: the texts of all ranks, and those of the ranks
// of one branch of a tree.
#include "src/comm/blobs.h"
#include "tests/fuzz/wire_check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace weft;
  using namespace weft::test;
  const std::string text(reinterpret_cast<const char*>(data), size);
  if (const auto blobs = split_blobs(text)) {
    std::string again;
    for (const std::string& blob : *blobs) append_blob(again, blob);
    require(again == text);
  }
  if (const auto round = PartialRound::decode(text)) {
    const auto again = PartialRound::decode(round->encode());
    require(again && again->type == round->type && again->blobs == round->blobs);
    for (const auto& [rank, blob] : round->blobs) require(rank >= 0);
  }
  return 0;
}
