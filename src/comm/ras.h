// The port that NCCL's client `ncclras` asks (NCCL_RAS_ENABLE, NCCL_RAS_ADDR). It answers with the
// status of all processes of this host and user.
#pragma once

#include <functional>
#include <string>
#include <utility>

namespace weft {

// Opens the port, once per process, if the user asks for it. If another process has it, that one
// answers.
void serve_ras();

// A client's session: takes lines and answers them.
class RasSession {
 public:
  using Status = std::function<std::string(bool json)>;
  explicit RasSession(Status status) : status_(std::move(status)) {}
  // The answer to a line without its end. After a status the session is over.
  std::string answer(const std::string& line);
  bool over() const { return over_; }

 private:
  Status status_;
  bool json_ = false, over_ = false;
};

}  // namespace weft
