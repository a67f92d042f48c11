// See proxy.h.
#include "src/transport/proxy.h"

#include <pthread.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <thread>
#include <vector>

#include "src/base/error.h"
#include "src/base/fork.h"
#include "src/base/log.h"
#include "src/base/process_cores.h"
#include "src/base/relax.h"
#include "src/transport/doorbell.h"
#include "src/transport/net_stream.h"
#include "src/transport/socket.h"

namespace weft {
namespace {

// The thread stays out of the way this long after a driver's last visit.
constexpr int kKeepOutMs = 5;
constexpr int kMostDescriptors = 4;    // of one stream
constexpr double kSpinSeconds = 1e-3;  // without news, before a polling thread sleeps
constexpr int kMostThreads = 64, kMostChosenThreads = 4;
// The shortest time before a proxy helps another. A message of 128 KiB takes 30 us. An all_reduce
// of 1 MiB between four processes on an H200 takes 640 us without help, 485 with 4 us, 476 with 12,
// and 563 with two proxies instead of three.
constexpr auto kPatience = std::chrono::microseconds(4);
// Every seventh round is for lower classes, too. Odd, because streams that had no news ask the
// kernel only in every fourth or sixteenth round.
constexpr uint32_t kMostSkippedRounds = 6;
// So many streams may all ask the kernel in a round without making others wait for long.
constexpr size_t kFewStreams = 8;
constexpr int kPauses = 16;  // after a round without news: a microsecond or less

// "0-3,8" as a set, limited to cores that this process may use. Empty if there is nothing to
// choose.
cpu_set_t parse_cores(const std::string& list) {
  const cpu_set_t allowed = cores_of_process();
  cpu_set_t chosen;
  CPU_ZERO(&chosen);
  std::istringstream in(list);
  for (std::string range; std::getline(in, range, ',');) {
    int first = 0, last = 0;
    const int read = std::sscanf(range.c_str(), "%d-%d", &first, &last);
    if (read < 1) continue;
    if (read == 1) last = first;
    for (int core = first; core <= last && core < CPU_SETSIZE; core++)
      if (CPU_ISSET(core, &allowed)) CPU_SET(core, &chosen);
  }
  return chosen;
}

// The cores near a PCI device, as /sys lists them; empty: there is nothing to choose.
std::string cores_near(const std::string& device) {
  std::string list;
  if (!device.empty()) std::getline(std::ifstream(device + "/local_cpulist"), list);
  const cpu_set_t cores = parse_cores(list);
  return CPU_COUNT(&cores) == 0 ? "" : list;
}

// All proxies of the process. Their threads never end, so they are never destroyed.
struct Proxies {
  std::mutex mutex;  // protects the rest
  size_t round = 0;
  std::array<std::atomic<Proxy*>, kMostThreads> list{};  // existing proxies come first
  std::map<std::string, std::string> known_cores;        // of devices
  // The cores that each proxy runs on, as /sys lists them: one list, or several if proxies are few.
  std::array<std::vector<std::string>, kMostThreads> places;
  std::map<std::string, size_t> rounds;  // per list

  static Proxies& instance() {
    static PerProcess<Proxies> proxies;
    return proxies.get();
  }

  // Which of the first `count` proxies have this place.
  std::vector<size_t> at(const std::string& place, size_t count) const {
    std::vector<size_t> found;
    for (size_t i = 0; i < count; i++)
      if (std::find(places[i].begin(), places[i].end(), place) != places[i].end())
        found.push_back(i);
    return found;
  }

  // Gives this place one proxy more, if it has less than its share, or if one has no place yet.
  // The proxy whose places changed; `count`: none.
  size_t settle(const std::string& place, size_t count) {
    std::set<std::string> all = {place};
    for (size_t i = 0; i < count; i++) all.insert(places[i].begin(), places[i].end());
    const size_t share = std::max<size_t>(1, count / all.size());
    const std::vector<size_t> mine = at(place, count);
    size_t most = share, taken = count;
    for (size_t i = count; i-- > 0;)  // one without a place, or one of a place with too many
      if (places[i].empty()) {
        taken = i;
        most = count;
      } else if (const size_t others = at(places[i].front(), count).size(); others > most) {
        taken = i;
        most = others;
      }
    if (taken < count && (mine.size() < share || places[taken].empty())) {
      places[taken] = {place};
      return taken;
    }
    if (!mine.empty()) return count;
    taken = rounds.size() % count;
    places[taken].push_back(place);
    return taken;
  }
};

}  // namespace

int proxy_threads(int wanted, bool for_gpus, int cores, int ranks) {
  if (wanted > 0) return std::min(wanted, kMostThreads);
  if (!for_gpus) return 1;
  // One core is left to the launching thread, which spins while it waits for the GPU.
  return std::clamp(cores / std::max(1, ranks) - 1, 1, kMostChosenThreads);
}

Proxy& Proxy::next(int threads, const std::string& nic) {
  Proxies& all = Proxies::instance();
  const std::lock_guard lock(all.mutex);
  const auto count = static_cast<size_t>(std::clamp(threads, 1, kMostThreads));
  for (size_t i = 0; i < count; i++)
    if (all.list[i].load() == nullptr) all.list[i].store(std::make_unique<Proxy>().release());
  const auto [known, fresh] = all.known_cores.try_emplace(nic);
  if (fresh) known->second = cores_near(nic);
  const std::string& place = known->second;
  if (place.empty()) return *all.list[all.round++ % count].load();
  if (const size_t changed = all.settle(place, count); changed < count)
    all.list[changed].load()->run_on(all.places[changed]);
  const std::vector<size_t> mine = all.at(place, count);
  return *all.list[mine[all.rounds[place]++ % mine.size()]].load();
}

Proxy::Proxy() : wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!wake_) fail_errno(errno, "cannot make the proxy's eventfd");
  std::thread thread([this] { loop(); });
  thread_ = thread.native_handle();
  pthread_setname_np(thread_, "weft-proxy");
  // The thread serves all ranks of the process, so it must not inherit the affinity of the rank
  // that created it.
  const cpu_set_t cores = cores_of_process();
  if (CPU_COUNT(&cores) > 0) pthread_setaffinity_np(thread_, sizeof cores, &cores);
  thread.detach();
}

void Proxy::run_on(const std::vector<std::string>& places) {
  cpu_set_t all;
  CPU_ZERO(&all);
  for (const std::string& place : places) {
    const cpu_set_t cores = parse_cores(place);
    CPU_OR(&all, &all, &cores);
  }
  if (pthread_setaffinity_np(thread_, sizeof all, &all) == 0)
    WEFT_INFO(kProxy, "a proxy runs on cores {}, near its NICs", fmt::join(places, " and "));
}

bool Proxy::may_run_on(int core) const {
  cpu_set_t cores;
  return pthread_getaffinity_np(thread_, sizeof cores, &cores) == 0 && CPU_ISSET(core, &cores);
}

void Proxy::wake() noexcept {
  const uint64_t one = 1;
  [[maybe_unused]] ssize_t written = write(wake_.get(), &one, sizeof one);
}

void Proxy::clear_wake() noexcept {
  uint64_t ignored = 0;
  [[maybe_unused]] ssize_t got = read(wake_.get(), &ignored, sizeof ignored);
}

void Proxy::add(const std::shared_ptr<NetStream>& stream) {
  {
    const auto lock = interrupt();
    streams_.push_back(stream);
    sort_streams();
  }
  wake();
}

void Proxy::set_priority(NetStream& stream, int priority) {
  const auto lock = interrupt();
  stream.set_priority(priority);
  sort_streams();
}

void Proxy::sort_streams() {
  std::stable_sort(streams_.begin(), streams_.end(),
                   [](const auto& a, const auto& b) { return a->priority() > b->priority(); });
}

// Calls move(i) for the i-th stream, by class.
template <typename Move>
bool Proxy::serve(const Move& move) noexcept {
  bool moved = false;
  for (size_t i = 0; i < streams_.size(); i++) {
    if (moved && streams_[i]->priority() < streams_[i - 1]->priority() &&
        skipped_.fetch_add(1, std::memory_order_relaxed) < kMostSkippedRounds)
      return true;
    moved = move(i) || moved;
  }
  skipped_.store(0, std::memory_order_relaxed);
  return moved;
}

void Proxy::remove(const std::shared_ptr<NetStream>& stream, double seconds) {
  const auto deadline = in_seconds(seconds);
  auto lock = interrupt();
  while (stream->unsent() && std::chrono::steady_clock::now() < deadline) {
    const bool moved = stream->progress(true);
    lock.unlock();
    if (!moved) std::this_thread::sleep_for(std::chrono::microseconds(200));
    lock = interrupt();
  }
  std::erase(streams_, stream);
}

void Proxy::enter() noexcept {
  drivers_.fetch_add(1);
  visits_.fetch_add(1);
  if (polling_.load()) wake();
}

void Proxy::leave(bool unfinished) noexcept {
  if (unfinished) urgent_.store(true);
  drivers_.fetch_sub(1);
  if (unfinished) wake();
}

bool Proxy::drive(NetStream& stream, bool eager) noexcept {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  return lock.owns_lock() && stream.progress(eager);
}

bool Proxy::drive_all() noexcept {
  const auto lock = interrupt();
  return serve([&](size_t i) { return streams_[i]->progress(true); });
}

bool Proxy::waits_for(std::vector<pollfd>& descriptors) {
  const auto lock = interrupt();
  bool can_sleep = true;
  for (const auto& stream : streams_) {
    pollfd waits[kMostDescriptors];
    const int count = stream->waits_for(waits, kMostDescriptors);
    descriptors.insert(descriptors.end(), waits, waits + count);
    can_sleep = can_sleep && (stream->can_sleep() || stream->broken());
  }
  return can_sleep;
}

bool Proxy::unsent(const NetStream& stream) noexcept {
  const auto lock = interrupt();
  return stream.unsent();
}

StreamFailure Proxy::failure(const NetStream& stream) {
  const auto lock = interrupt();
  return stream.failure();
}

void Proxy::abandon(NetStream& stream) noexcept {
  const auto lock = interrupt();
  stream.abandon();
}

void Proxy::keep_polling(bool on) noexcept {
  if (on) {
    stays_.fetch_add(1);
    wake();
  } else {
    stays_.fetch_sub(1);
  }
}

void Proxy::observe(NetStream& stream, std::unique_ptr<StreamObserver> observer) {
  const auto lock = interrupt();
  stream.observe(std::move(observer));
}

void Proxy::observe(ProxyObserver& observer) {
  const std::lock_guard lock(observers_mutex_);
  observers_.push_back({&observer, ProxyState::kIdle});
  observed_.store(true);
  if (state_.load() == ProxyState::kAsleep) tell(observers_.back(), ProxyState::kAsleep);
}

void Proxy::forget(ProxyObserver& observer) noexcept {
  const std::lock_guard lock(observers_mutex_);
  std::erase_if(observers_, [&](const Told& told) { return told.observer == &observer; });
  observed_.store(!observers_.empty());
}

// A thread that wakes and finds nothing counts as still asleep.
void Proxy::become(ProxyState next) {
  const ProxyState last = state_.load(std::memory_order_relaxed);
  if (last == next || (last == ProxyState::kAsleep && next == ProxyState::kIdle)) return;
  state_.store(next);
  if (!observed_.load()) return;
  const std::lock_guard lock(observers_mutex_);
  for (Told& told : observers_) tell(told, next);
}

// The thread may have fallen asleep just when the observer came. Then the first of the two reports
// it.
void Proxy::tell(Told& told, ProxyState next) {
  if (told.state != next) told.observer->turned(told.state, next);
  told.state = next;
}

// True while drivers move the streams, or did so a moment ago.
bool Proxy::keep_out(uint64_t& visits_seen) {
  if (drivers_.load() > 0) return true;
  if (urgent_.exchange(false)) return false;
  return visits_.load() != visits_seen;
}

std::unique_lock<std::shared_mutex> Proxy::interrupt() noexcept {
  interrupts_.fetch_add(1);
  std::unique_lock lock(mutex_);
  interrupts_.fetch_sub(1);
  return lock;
}

// Streams that are polled seldom are polled in different rounds.
bool Proxy::look_after_streams(uint32_t round, Clock::time_point now, bool own) noexcept {
  std::shared_lock lock(mutex_, std::defer_lock);
  if (own) lock.lock();
  if (!own && !lock.try_lock()) return false;
  const bool patient = streams_.size() <= kFewStreams;
  return serve([&](size_t i) {
    NetStream& stream = *streams_[i];
    if ((!own && !stream.takes_help()) || !stream.claim()) return false;
    const bool moved = stream.look(round + static_cast<uint32_t>(i), now, patient);
    stream.release();
    return moved;
  });
}

// Polls the streams of proxies that have been in one round for long.
bool Proxy::help(Watch& watch, Clock::time_point now) const noexcept {
  bool moved = false;
  for (size_t i = 0; i < watch.others.size(); i++) {
    Proxy* other = Proxies::instance().list[i].load();
    if (other == nullptr) break;
    if (other == this || other->stays_.load() == 0) continue;
    Watch::Other& seen = watch.others[i];
    if (const uint32_t round = other->round_.load(std::memory_order_relaxed); round != seen.round) {
      seen = {round, now};
    } else if (now - seen.since > watch.patience && other->interrupts_.load() == 0) {
      moved = other->look_after_streams(watch.round, now, false) || moved;
    }
  }
  return moved;
}

// A GPU rings no bell, so the thread polls. It polls less and less often while there is no news.
void Proxy::watch(Watch& watch) {
  static const uint32_t spins = std::thread::hardware_concurrency() > 4 ? 16 : 1;
  while (interrupts_.load() > 0) sched_yield();
  round_.store(++watch.round, std::memory_order_relaxed);
  const auto begin = Clock::now();
  bool moved = look_after_streams(watch.round, begin, true);
  auto now = Clock::now();
  if (!moved) {
    // Proxies as fast as this one need no help.
    watch.patience = std::max<Clock::duration>(kPatience, 2 * (now - begin));
    moved = help(watch, now);
    if (moved) now = Clock::now();
  }
  become(moved ? ProxyState::kActive : ProxyState::kIdle);
  if (moved) {
    watch.last_move = now;
  } else if (const double idle = std::chrono::duration<double>(now - watch.last_move).count();
             idle > kSpinSeconds) {
    become(ProxyState::kAsleep);
    std::this_thread::sleep_for(std::chrono::microseconds(idle < 0.1 ? 20 : 100));
  } else {
    for (int i = 0; i < kPauses; i++) relax();
    if (watch.round % spins == 0) sched_yield();
  }
}

void Proxy::loop() {
  prctl(PR_SET_TIMERSLACK, 1000UL);  // ns, because the thread sleeps for short times
  uint64_t visits_seen = 0;
  std::vector<pollfd> descriptors;
  Watch watched;
  watched.others.resize(kMostThreads);
  auto last_move = std::chrono::steady_clock::now();
  for (;;) {
    if (stays_.load() > 0) {
      watch(watched);
      continue;
    }
    if (keep_out(visits_seen)) {
      visits_seen = visits_.load();
      become(ProxyState::kAsleep);
      pollfd p{wake_.get(), POLLIN, 0};
      if (poll(&p, 1, kKeepOutMs) > 0) clear_wake();
      continue;
    }
    // Set before the last look. Drivers that come from here on wake this thread from poll(). Lanes
    // that put a message into a ring ring the bell.
    polling_.store(true);
    prepare_sleep(door_);
    const bool moved = drive_all();
    become(moved ? ProxyState::kActive : ProxyState::kIdle);
    if (moved) last_move = std::chrono::steady_clock::now();
    if (!moved && drivers_.load() == 0) {
      descriptors.assign(1, {wake_.get(), POLLIN, 0});
      const bool can_sleep = waits_for(descriptors);
      // A plugin with nothing to sleep on is polled often at first, then less and less.
      const double idle =
          std::chrono::duration<double>(std::chrono::steady_clock::now() - last_move).count();
      if (!can_sleep && idle < 100e-6) {
        sched_yield();
      } else {
        become(ProxyState::kAsleep);
        const int limit = can_sleep ? 1000 : idle < 0.1 ? 0 : 1;
        if (limit == 0) std::this_thread::sleep_for(std::chrono::microseconds(50));
        if (poll(descriptors.data(), descriptors.size(), limit) > 0) clear_wake();
      }
    }
    __atomic_store_n(&door_.sleeping, 0, __ATOMIC_SEQ_CST);
    polling_.store(false);
  }
}

}  // namespace weft
