// timelines_svg() of timeline_views.h.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <vector>

#include "src/workload/timeline_views.h"

namespace weft::workload {
namespace {

constexpr double kWidth = 1000, kLeft = 150, kRow = 16, kTop = 24;
constexpr size_t kMostActors = 8;

const char* color_of(const Op& op) {
  if (op.collective)
    return op.phase == Phase::kGradient || op.phase == Phase::kParameter ? "#b0743c" : "#c8503c";
  switch (op.phase) {
    case Phase::kForward:
      return "#4c78a8";
    case Phase::kInputGradient:
      return "#54a24b";
    case Phase::kWeightGradient:
      return "#9ccb86";
    case Phase::kExtra:
      return "#b279a2";
    default:
      return "#8a8a8a";
  }
}

// Names may have any character.
std::string safe(const std::string& text) {
  std::string out;
  for (const char c : text)
    out += c == '<' ? "&lt;" : c == '>' ? "&gt;" : c == '&' ? "&amp;" : std::string(1, c);
  return out;
}

class Picture {
 public:
  explicit Picture(double us) : scale_(kWidth / std::max(us, 1e-9)) {}

  void draw(const Graph& graph, const Timeline& timeline, const std::string& title) {
    text_ += fmt::format("<text x=\"4\" y=\"{:.1f}\" font-weight=\"bold\">{}</text>\n", y_ + 12,
                         safe(title));
    y_ += kTop;
    const size_t actors = std::min(kMostActors, timeline.actors.ranks.size());
    std::map<std::pair<size_t, std::string>, double> rows;
    for (size_t a = 0; a < actors; a++) {
      std::vector<std::string> streams;
      for (const Op& op : graph.ops) {
        const auto& mine = timeline.actors.of(op);
        if (std::binary_search(mine.begin(), mine.end(), static_cast<int>(a)) &&
            std::find(streams.begin(), streams.end(), op.stream) == streams.end())
          streams.push_back(op.stream);
      }
      for (const std::string& stream : streams) {
        rows[{a, stream}] = y_;
        text_ += fmt::format("<text x=\"4\" y=\"{:.1f}\">rank {} {}</text>\n", y_ + 12,
                             timeline.actors.ranks[a].front(), safe(stream));
        y_ += kRow;
      }
      y_ += 4;
    }
    for (const Span& span : timeline.spans) {
      const Op& op = graph.ops[static_cast<size_t>(span.op)];
      for (const int actor : timeline.actors.of(op)) {
        if (span.actor >= 0 && span.actor != actor) continue;
        const auto it = rows.find({static_cast<size_t>(actor), op.stream});
        if (it != rows.end()) box(op, span, it->second);
      }
    }
    y_ += 12;
  }

  std::string finish() const {
    return fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {:.0f} {:.0f}\" "
        "font-family=\"sans-serif\" font-size=\"11\">\n<rect width=\"100%\" height=\"100%\" "
        "fill=\"white\"/>\n{}</svg>\n",
        kLeft + kWidth + 10, y_, text_);
  }

 private:
  void box(const Op& op, const Span& span, double y) {
    const double width = (span.end_us - span.begin_us) * scale_;
    if (width < 0.05) return;
    text_ += fmt::format(
        "<rect x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{:.0f}\" fill=\"{}\" "
        "stroke=\"white\" stroke-width=\"0.3\"><title>{}: {:.1f} to {:.1f} us</title></rect>\n",
        kLeft + span.begin_us * scale_, y, width, kRow - 2, color_of(op), safe(op.id),
        span.begin_us, span.end_us);
  }

  const double scale_;
  double y_ = 4;
  std::string text_;
};

}  // namespace

std::string timelines_svg(const Graph& before, const Timeline& first, const Graph& after,
                          const Timeline& second) {
  Picture picture(std::max(first.us, second.us));
  picture.draw(before, first,
               fmt::format("before: {:.4g} ms, {:.4g} ms exposed", first.us * 1e-3,
                           first.exposed_us * 1e-3));
  picture.draw(after, second,
               fmt::format("after: {:.4g} ms, {:.4g} ms exposed", second.us * 1e-3,
                           second.exposed_us * 1e-3));
  return picture.finish();
}

}  // namespace weft::workload
