// See last_error.h.
#include "src/base/last_error.h"

#include <mutex>

#include "src/base/fork.h"

namespace weft {
namespace {

struct LastError {
  std::mutex mutex;
  std::string text;
  static LastError& instance() {
    static PerProcess<LastError> last;
    return last.get();
  }
};

}  // namespace

void remember_error(const std::string& text) {
  LastError& last = LastError::instance();
  std::lock_guard lock(last.mutex);
  last.text = text;
}

std::string remembered_error() {
  LastError& last = LastError::instance();
  std::lock_guard lock(last.mutex);
  return last.text;
}

}  // namespace weft
