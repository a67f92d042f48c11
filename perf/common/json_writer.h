// Writes JSON text. Calls nest objects and arrays; commas and escapes are automatic.
#pragma once

#include <concepts>
#include <string>
#include <string_view>
#include <vector>

namespace weft::perf {

class JsonWriter {
 public:
  // The key is ignored inside arrays and for the outermost value.
  void begin_object(std::string_view key = {}) { open(key, '{'); }
  void end_object() { close('}'); }
  void begin_array(std::string_view key = {}) { open(key, '['); }
  void end_array() { close(']'); }

  void text(std::string_view key, std::string_view value);
  void number(std::string_view key, double value);
  void number(std::string_view key, std::integral auto value) { raw(key, std::to_string(value)); }
  void boolean(std::string_view key, bool value) { raw(key, value ? "true" : "false"); }
  void null(std::string_view key) { raw(key, "null"); }

  const std::string& str() const { return out_; }

 private:
  void raw(std::string_view key, std::string_view value);
  void open(std::string_view key, char bracket);
  void close(char bracket);
  void quote(std::string_view text);

  struct Level {
    bool array;
    bool empty;
  };
  std::string out_;
  std::vector<Level> levels_;
};

// Writes the text to path, or to path.1, path.2, ... if path exists. Returns the path used. Throws
// std::runtime_error if it cannot write.
std::string write_new_file(const std::string& path, const std::string& text);

}  // namespace weft::perf
