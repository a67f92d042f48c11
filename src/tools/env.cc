// weft env: the environment variables that Weft reads, and NCCL's that have no effect.
#include <fmt/format.h>

#include <memory>

#include "src/base/config.h"
#include "src/base/variables.h"
#include "src/tools/commands.h"

namespace weft {
namespace {

std::string cell(std::string text) {
  for (size_t at = 0; (at = text.find('|', at)) != std::string::npos; at += 2)
    text.insert(at, "\\");
  return text;
}

void print_rows(const std::string& title, const std::string& prefix) {
  fmt::print("\n## {}\n| variable | default | meaning |\n|---|---|---|\n", title);
  for (const auto& entry : describe(Config{}))
    if (entry.name.starts_with(prefix))
      fmt::print("| `{}` | {} | {} |\n", entry.name, entry.value, cell(entry.meaning));
}

// Prints docs/environment.md, which does not depend on this machine.
void print_markdown() {
  fmt::print(
      "# Environment variables\n\n"
      "`weft env --markdown` writes this page, and a test fails when it is stale. `weft env` shows "
      "the values on your machine.\n\n"
      "Weft looks for a variable in the environment, then in `NCCL_CONF_FILE` (or `~/.nccl.conf`), "
      "then in `/etc/nccl.conf`.\nA line of these files is `NAME=VALUE`, and `#` begins a comment. "
      "Numbers take K, M and G. An empty default means that the variable is unset.\n"
      "With `NCCL_DEBUG=INFO` (subsystem ENV) Weft logs every `NCCL_*` variable that is set: its "
      "value, or why it has no effect.\n");
  print_rows("NCCL's", "NCCL_");
  print_rows("MSCCL's", "MSCCL_");
  print_rows("Weft's own", "WEFT_");
  fmt::print(
      "\n## Variables of NCCL and others that have no effect\n| variable | why |\n|---|---|\n");
  for (const IdleVariable& idle : idle_variables())
    fmt::print("| `{}` | {} |\n", idle.name, cell(idle.why));
}

}  // namespace

void add_env(Command& program) {
  const auto markdown = std::make_shared<bool>(false);
  Command command =
      program.add_command("env", "the environment variables Weft reads, and their values here");
  command.add_flag("--markdown", *markdown, "docs/environment.md: names, defaults and meanings");
  command.calls([markdown] {
    if (*markdown) return print_markdown();
    for (const auto& entry : describe(Config::from_environment()))
      fmt::print("{:24} {:20} {}\n", entry.name, entry.value.empty() ? "-" : entry.value,
                 entry.meaning);
  });
}

}  // namespace weft
