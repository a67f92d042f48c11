// Fuzzes what ranks tell each other about ranks that leave, fail or wait for long.
#include <algorithm>

#include "src/comm/news.h"
#include "src/comm/stall_report.h"
#include "tests/fuzz/wire_check.h"

namespace weft::test {
namespace {

constexpr int kKinds = kNamedKinds + 1;

void check_report(const std::string& bytes) {
  StallReport report;
  if (!StallReport::decode(bytes, report)) return;
  const OperationState& state = report.state;
  require(state.phase <= OperationState::Phase::kFailed && static_cast<int>(state.kind) < kKinds);
  require(report.runs <= StallReport::kLatest);
  require(report.hops.size() <= StallReport::kMostHops);
  for (const WaitHop& hop : report.hops)
    require(std::max(hop.who.size(), hop.what.size()) <= StallReport::kMostText);
  for (uint32_t i = 0; i < report.runs; i++) {
    const CallRun& run = report.latest[i];
    require(run.first <= run.end && static_cast<int>(run.call.kind) < kKinds);
    require(!describe(run.call).empty());
  }
  require(
      !describe(common_call(state.kind, state.type, state.op, state.root, state.count)).empty());
  // Every field is on the wire once, so equal bytes are equal reports.
  StallReport again;
  require(report.encode() == bytes && StallReport::decode(report.encode(), again));
  require(again.encode() == bytes);
}

void check_news(const std::string& bytes) {
  const auto news = News::decode(bytes);
  if (!news) return;
  const auto again = News::decode(news->encode());
  require(again && again->kind == news->kind && again->primary == news->primary);
  require(again->rank == news->rank && again->reporter == news->reporter);
  require(again->code == news->code && again->when_us == news->when_us);
  require(again->text == news->text && again->encode() == news->encode());
  if (news->kind == News::Kind::kStalls) check_report(news->text);
}

}  // namespace
}  // namespace weft::test

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return weft::test::check_text(data, size, weft::test::check_news);
}
