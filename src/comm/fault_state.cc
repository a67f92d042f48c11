// See fault_state.h.
#include "src/comm/fault_state.h"

#include <algorithm>
#include <thread>
#include <tuple>
#include <utility>

namespace weft {

namespace {

// A rank that knew of a failure before tells of a consequence. So clocks decide only between ranks
// that did not know of each other's reports.
auto order(const News& news) { return std::tuple(!news.primary, news.when_us, news.reporter); }

}  // namespace

void FaultState::keep_first_stuck(const News& news, const std::string& text) {
  if (!stuck_.text.empty() && order(news) >= order(stuck_)) return;
  stuck_ = news;
  stuck_.text = text;
}

void FaultState::add_stuck(const News& news, const std::string& text) {
  std::lock_guard lock(mutex_);
  if (known_ && Clock::now() - since_ > kSettle) return;
  keep_first_stuck(news, text);
}

void FaultState::add(const News& news, const std::string& text) {
  std::lock_guard lock(mutex_);
  const auto now = Clock::now();
  if (known_ && now - since_ > kSettle) return;
  if (!known_) since_ = now;
  if (news.kind == News::Kind::kGaveUp && !news.primary && !text.empty())
    keep_first_stuck(news, text);
  if (known_ && order(news) >= order(news_)) return;
  known_ = true;
  news_ = news;
  text_ = text;
  changed_.notify_all();
}

void FaultState::hold(const News& news, const std::string& text) {
  {
    std::lock_guard lock(mutex_);
    if (!known_) {
      if (held_.text.empty()) {
        held_ = news;
        held_.text = text;
      }
      return;
    }
  }
  add(news, text);
}

void FaultState::wake() {
  News news;
  {
    std::lock_guard lock(mutex_);
    std::swap(news, held_);
  }
  if (!news.text.empty()) add(news, news.text);
}

bool FaultState::holds() const {
  std::lock_guard lock(mutex_);
  return !held_.text.empty();
}

bool FaultState::known() const {
  std::lock_guard lock(mutex_);
  return known_;
}

bool FaultState::wait_known(std::chrono::milliseconds most) const {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, most, [&] { return known_; });
}

bool FaultState::wait_known(std::stop_token stop) const {
  std::unique_lock lock(mutex_);
  return changed_.wait(lock, std::move(stop), [&] { return known_; });
}

void FaultState::add_death(int rank, const std::string& text) {
  std::lock_guard lock(mutex_);
  deaths_.try_emplace(rank, text);
  changed_.notify_all();
}

std::map<int, std::string>::const_iterator FaultState::find_death(
    std::span<const int> ranks) const {
  return std::find_if(deaths_.begin(), deaths_.end(), [&](const auto& death) {
    return std::find(ranks.begin(), ranks.end(), death.first) != ranks.end();
  });
}

std::string FaultState::death_of(std::span<const int> ranks, std::chrono::milliseconds most) const {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, most, [&] { return find_death(ranks) != deaths_.end(); });
  const auto found = find_death(ranks);
  return found == deaths_.end() ? std::string() : found->second;
}

bool FaultState::wait_death_of(std::span<const int> ranks, std::stop_token stop) const {
  std::unique_lock lock(mutex_);
  return changed_.wait(lock, std::move(stop), [&] { return find_death(ranks) != deaths_.end(); });
}

std::string FaultState::whole_text() const {
  return stuck_.text.empty() || !news_.is_departure() ? text_ : text_ + "; " + stuck_.text;
}

FaultState::Answer FaultState::get() const {
  std::lock_guard lock(mutex_);
  if (!known_ || Clock::now() - since_ <= kSettle) return {};
  return {news_.code, whole_text()};
}

FaultState::Answer FaultState::settle() const {
  Clock::time_point settled;
  {
    std::lock_guard lock(mutex_);
    settled = since_ + kSettle;
  }
  std::this_thread::sleep_until(settled + std::chrono::milliseconds(1));
  std::lock_guard lock(mutex_);
  return {news_.code, whole_text()};
}

}  // namespace weft
