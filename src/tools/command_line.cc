// See command_line.h.
#include "src/tools/command_line.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>

#include "src/base/error.h"
#include "src/schedule/collective.h"

namespace weft {
namespace {

CLI::Validator is_collective() {
  return {[](std::string& text) -> std::string {
            if (parse_collective(text)) return {};
            std::string names;
            for (int kind = 0; kind < kCollectiveKinds; kind++)
              names +=
                  (kind > 0 ? ", " : "") + std::string(name(static_cast<CollectiveKind>(kind)));
            return "'" + text + "' is no collective (" + names + ")";
          },
          "COLL"};
}

}  // namespace

CommandOption CommandOption::required() { return CommandOption(option_->required()); }
CommandOption CommandOption::in_bytes() {
  return CommandOption(option_->transform(CLI::AsSizeValue(false)));
}
CommandOption CommandOption::between(int least, int most) {
  return CommandOption(option_->check(CLI::Range(least, most)));
}
CommandOption CommandOption::between(uint64_t least, uint64_t most) {
  return CommandOption(option_->check(CLI::Range(least, most)));
}
CommandOption CommandOption::between(double least, double most) {
  return CommandOption(option_->check(CLI::Range(least, most)));
}
CommandOption CommandOption::positive() {
  return CommandOption(option_->check(CLI::PositiveNumber));
}
CommandOption CommandOption::one_of(const std::vector<std::string>& values) {
  return CommandOption(option_->check(CLI::IsMember(values)));
}
CommandOption CommandOption::collective() { return CommandOption(option_->check(is_collective())); }
CommandOption CommandOption::folder() {
  return CommandOption(option_->check(CLI::ExistingDirectory));
}
CommandOption CommandOption::separated_by(char delimiter) {
  return CommandOption(option_->delimiter(delimiter));
}
CommandOption CommandOption::with_default() {
  return CommandOption(option_->capture_default_str());
}

Command Command::add_command(const std::string& name, const std::string& summary) {
  return Command(app_->add_subcommand(name, summary));
}
CommandOption Command::add_option(const std::string& names, std::string& value,
                                  const std::string& text) {
  return CommandOption(app_->add_option(names, value, text));
}
CommandOption Command::add_option(const std::string& names, int& value, const std::string& text) {
  return CommandOption(app_->add_option(names, value, text));
}
CommandOption Command::add_option(const std::string& names, uint64_t& value,
                                  const std::string& text) {
  return CommandOption(app_->add_option(names, value, text));
}
CommandOption Command::add_option(const std::string& names, double& value,
                                  const std::string& text) {
  return CommandOption(app_->add_option(names, value, text));
}
CommandOption Command::add_option(const std::string& names, std::vector<std::string>& values,
                                  const std::string& text) {
  return CommandOption(app_->add_option(names, values, text));
}
void Command::add_flag(const std::string& names, bool& value, const std::string& text) {
  app_->add_flag(names, value, text);
}
void Command::calls(std::function<void()> action) { app_->callback(std::move(action)); }

CommandLine::CommandLine(std::string name, const std::string& summary)
    : Command(nullptr), name_(std::move(name)), owned_(std::make_unique<CLI::App>(summary)) {
  app_ = owned_.get();
}
CommandLine::~CommandLine() = default;

void CommandLine::set_version(const std::string& text) {
  app_->set_version_flag("--version", text);
}
void CommandLine::require_command() { app_->require_subcommand(1); }

int CommandLine::run(int argc, char** argv) {
  try {
    app_->parse(argc, argv);
  } catch (const ExitCode& answer) {
    return answer.code;
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app_->exit(error);  // --help, --version
    fmt::print(stderr, "{}: {} (--help tells more)\n", name_, error.what());
    return 2;
  } catch (const Error& error) {
    fmt::print(stderr, "{}: {}\n", name_, error.what());
    return 2;
  }
  return 0;
}

}  // namespace weft
