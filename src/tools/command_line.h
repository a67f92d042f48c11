// The command line of a program: its commands, their options, and checks of the values. CLI11 does
// the work. Only command_line.cc includes it, because it takes longer to compile than any command.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace weft {

// Thrown by a command that has printed its answer: the program ends with this code.
struct ExitCode {
  int code;
};

// The requirements of an option. A handle: copies refer to the same option.
class CommandOption {
 public:
  explicit CommandOption(CLI::Option* option) : option_(option) {}

  CommandOption required();
  CommandOption in_bytes();  // accepts K, M and G
  CommandOption between(int least, int most);
  CommandOption between(uint64_t least, uint64_t most);
  CommandOption between(double least, double most);
  CommandOption positive();
  CommandOption one_of(const std::vector<std::string>& values);
  CommandOption collective();
  CommandOption folder();  // an existing folder
  CommandOption separated_by(char delimiter);
  CommandOption with_default();  // the help shows it

 private:
  CLI::Option* option_;
};

// A command, or the program itself. A handle, too. Values must outlive the call.
class Command {
 public:
  Command add_command(const std::string& name, const std::string& summary);
  CommandOption add_option(const std::string& names, std::string& value, const std::string& text);
  CommandOption add_option(const std::string& names, int& value, const std::string& text);
  CommandOption add_option(const std::string& names, uint64_t& value, const std::string& text);
  CommandOption add_option(const std::string& names, double& value, const std::string& text);
  CommandOption add_option(const std::string& names, std::vector<std::string>& values,
                           const std::string& text);
  void add_flag(const std::string& names, bool& value, const std::string& text);
  void calls(std::function<void()> action);

 protected:
  explicit Command(CLI::App* app) : app_(app) {}
  CLI::App* app_;
};

class CommandLine : public Command {
 public:
  CommandLine(std::string name, const std::string& summary);
  ~CommandLine();
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;

  void set_version(const std::string& text);
  void require_command();
  // Parses the arguments and runs the command. Returns the exit code for main(): 0, the code of a
  // thrown ExitCode, or 2. Bad usage and errors of the library give 2 and one line on stderr.
  int run(int argc, char** argv);

 private:
  const std::string name_;
  const std::unique_ptr<CLI::App> owned_;
};

}  // namespace weft
