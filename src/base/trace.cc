// See trace.h.
#include "src/base/trace.h"

#include <fmt/format.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "src/base/handles.h"
#include "src/base/log.h"
#include "src/base/regular_file.h"

namespace weft::trace {
namespace {

constexpr size_t kMostSpans = size_t{1} << 20;  // per process; more are dropped
constexpr int kPeerRows = 1 << 16;              // rows from here on are peers
// Rows from here on are links: the channel, the peer and, in the last bit, the direction.
constexpr int kNetworkRows = 1 << 30;
constexpr int kNetworkPeers = 1 << 16;

std::string quoted_text(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return out + '"';
}

// Spans of one thread. Other threads take its lock only to write the file.
struct Buffer {
  std::mutex mutex;
  std::vector<Span> spans;
};

class Recorder {
 public:
  static Recorder& instance() {
    static Recorder& one = *std::make_unique<Recorder>().release();  // for exit handlers
    return one;
  }

  int64_t open(const std::string& file, const std::string& label, uint64_t job,
               uint64_t communicator, int rank) {
    std::lock_guard lock(mutex_);
    if (path_.empty()) {
      path_ = log::expand_path(file);
      job_ = job;
      std::atexit([] { instance().write(); });
    }
    open_++;
    const auto id = static_cast<int64_t>(((communicator & 0x3ffff) << 12) | (rank & 0xfff));
    names_ += fmt::format(R"({{"ph":"M","name":"process_name","pid":{},"args":{{"name":{}}}}},)"
                          "\n"
                          R"({{"ph":"M","name":"process_sort_index","pid":{},)"
                          R"("args":{{"sort_index":{}}}}},)"
                          "\n",
                          id, quoted_text(label), id, rank);
    return id;
  }
  void close() {
    bool last = false;
    {
      std::lock_guard lock(mutex_);
      last = --open_ == 0;
    }
    if (last) write();
  }
  Buffer& buffer() {
    thread_local const std::shared_ptr<Buffer> own = [this] {
      auto made = std::make_shared<Buffer>();
      std::lock_guard lock(mutex_);
      buffers_.push_back(made);
      return made;
    }();
    return *own;
  }
  bool room() { return count_.fetch_add(1, std::memory_order_relaxed) < kMostSpans; }

  void write() noexcept try {
    std::lock_guard lock(mutex_);
    std::string text = std::move(names_);
    names_.clear();
    for (const auto& buffer : buffers_) {
      std::vector<Span> spans;
      {
        std::lock_guard own(buffer->mutex);
        spans.swap(buffer->spans);
      }
      for (const Span& span : spans) describe(span, text);
    }
    if (const size_t seen = count_.exchange(0); seen > kMostSpans)
      WEFT_WARN("WEFT_TRACE: {} of {} spans were dropped", seen - kMostSpans, seen);
    if (!text.empty()) append(text.substr(0, text.rfind(',')));
  } catch (const std::exception& error) {
    WEFT_WARN("WEFT_TRACE: {}", error.what());
  }

 private:
  void describe(const Span& span, std::string& text) {
    std::string more;
    if (span.step >= 0) more += fmt::format(R"(,"step":{},"slice":{})", span.step, span.slice);
    if (span.from >= 0) more += fmt::format(R"(,"from":"rank {}")", span.from);
    if (span.to >= 0) more += fmt::format(R"(,"to":"rank {}")", span.to);
    if (span.plan != nullptr) more += fmt::format(R"(,"plan":{})", quoted_text(span.plan));
    if (span.means != nullptr) more += fmt::format(",{}", span.means);
    if (span.blocks > 0) more += fmt::format(R"(,"blocks":{})", span.blocks);
    if (span.nic != nullptr) more += fmt::format(R"(,"nic":{})", quoted_text(span.nic));
    const auto event = [&](int row, const char* name) {
      if (rows_.emplace(span.track, row).second) text += row_name(span.track, row);
      text += fmt::format(R"({{"ph":"X","name":"{}","pid":{},"tid":{},"ts":{:.3f},"dur":{:.3f},)"
                          R"("args":{{"operation":{},"bytes":{}{}}}}},)"
                          "\n",
                          name, span.track, row, static_cast<double>(span.begin) / 1e3,
                          static_cast<double>(span.end - span.begin) / 1e3, span.operation,
                          span.bytes, more);
    };
    event(span.row, span.name);
    if (span.to >= 0) event(kPeerRows + span.to, span.name);
  }
  static std::string link_name(int link) {
    return fmt::format("network {} rank {}, channel {}", link % 2 == 0 ? "to" : "from",
                       link / 2 % kNetworkPeers, link / 2 / kNetworkPeers);
  }
  static std::string row_name(int64_t track, int row) {
    const std::string label = row == 0             ? "operations"
                              : row < kPeerRows    ? fmt::format("lane {}", row - 1)
                              : row < kNetworkRows ? fmt::format("to rank {}", row - kPeerRows)
                                                   : link_name(row - kNetworkRows);
    return fmt::format(
        R"({{"ph":"M","name":"thread_name","pid":{},"tid":{},"args":{{"name":"{}"}}}},)"
        "\n",
        track, row, label);
  }
  void complain() const {
    WEFT_WARN("WEFT_TRACE: cannot write {}: {}", path_, std::strerror(errno));
  }
  // Appends if processes of the same job wrote the file, otherwise overwrites it.
  void append(const std::string& text) {
    const std::string first = fmt::format(
        "[{{\"ph\":\"M\",\"name\":\"weft_job\",\"pid\":0,\"args\":{{\"job\":\"{:016x}\"}}}}", job_);
    const Fd file = open_to_write(path_, Content::kKept);
    flock(file.get(), LOCK_EX);  // released on close
    std::string seen(first.size(), '\0');
    const ssize_t got = pread(file.get(), seen.data(), seen.size(), 0);
    const bool ours = got == static_cast<ssize_t>(first.size()) && seen == first;
    if (!ours && ftruncate(file.get(), 0) != 0) return complain();
    const off_t at = ours ? lseek(file.get(), 0, SEEK_END) - 3 : 0;  // before the "\n]\n"
    const std::string rest = (ours ? "" : first) + ",\n" + text + "\n]\n";
    for (size_t done = 0; done < rest.size();) {
      const ssize_t written =
          pwrite(file.get(), rest.data() + done, rest.size() - done, at + static_cast<off_t>(done));
      if (written <= 0) return complain();
      done += static_cast<size_t>(written);
    }
  }

  std::mutex mutex_;
  std::string path_, names_;
  uint64_t job_ = 0;
  int open_ = 0;
  std::vector<std::shared_ptr<Buffer>> buffers_;
  std::set<std::pair<int64_t, int>> rows_;  // rows that have a name in the file
  std::atomic<size_t> count_{0};
};

}  // namespace

Track::Track(const std::string& file, const std::string& label, uint64_t job, uint64_t communicator,
             int rank) {
  if (!file.empty()) id_ = Recorder::instance().open(file, label, job, communicator, rank);
}

Track::~Track() {
  if (id_ >= 0) Recorder::instance().close();
}

Track::Track(Track&& other) noexcept : id_(std::exchange(other.id_, -1)) {}

Track& Track::operator=(Track&& other) noexcept {
  std::swap(id_, other.id_);
  return *this;
}

int32_t network_row(int peer, int channel, bool sends) {
  return kNetworkRows + (channel * kNetworkPeers + peer % kNetworkPeers) * 2 + (sends ? 0 : 1);
}

int64_t now() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * int64_t{1'000'000'000} + time.tv_nsec;
}

void add(const Span& span) {
  Recorder& recorder = Recorder::instance();
  if (!recorder.room()) return;
  Buffer& buffer = recorder.buffer();
  std::lock_guard lock(buffer.mutex);
  buffer.spans.push_back(span);
}

const char* keep(const std::string& text) {
  static std::mutex mutex;
  static auto& kept = *std::make_unique<std::set<std::string>>().release();
  std::lock_guard lock(mutex);
  return kept.insert(text).first->c_str();
}

}  // namespace weft::trace
