// JSON text, two spaces per level.
#include "perf/common/json_writer.h"

#include <cerrno>
#include <cmath>
#include <cstdio>
#include <memory>
#include <stdexcept>

namespace weft::perf {

void JsonWriter::quote(std::string_view text) {
  out_ += '"';
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out_ += '\\';
      out_ += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\u%04x", static_cast<unsigned>(c));
      out_ += escape;
    } else {
      out_ += c;
    }
  }
  out_ += '"';
}

void JsonWriter::raw(std::string_view key, std::string_view value) {
  if (!levels_.empty()) {
    if (!levels_.back().empty) out_ += ',';
    levels_.back().empty = false;
    out_ += '\n';
    out_.append(2 * levels_.size(), ' ');
    if (!levels_.back().array) {
      quote(key);
      out_ += ": ";
    }
  }
  out_ += value;
}

void JsonWriter::open(std::string_view key, char bracket) {
  raw(key, std::string_view(&bracket, 1));
  levels_.push_back({bracket == '[', true});
}

void JsonWriter::close(char bracket) {
  const bool empty = levels_.back().empty;
  levels_.pop_back();
  if (!empty) {
    out_ += '\n';
    out_.append(2 * levels_.size(), ' ');
  }
  out_ += bracket;
  if (levels_.empty()) out_ += '\n';
}

void JsonWriter::text(std::string_view key, std::string_view value) {
  raw(key, "");
  quote(value);
}

void JsonWriter::number(std::string_view key, double value) {
  if (!std::isfinite(value)) return null(key);
  char text[40];
  std::snprintf(text, sizeof text, "%.10g", value);
  raw(key, text);
}

std::string write_new_file(const std::string& path, const std::string& text) {
  struct Closer {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  constexpr int kMostTries = 10000;
  for (int n = 0; n < kMostTries; ++n) {
    std::string name = n == 0 ? path : path + "." + std::to_string(n);
    const std::unique_ptr<std::FILE, Closer> file(std::fopen(name.c_str(), "wx"));
    if (file == nullptr && errno == EEXIST) continue;
    if (file == nullptr || std::fwrite(text.data(), 1, text.size(), file.get()) != text.size() ||
        std::fflush(file.get()) != 0) {
      break;
    }
    return name;
  }
  throw std::runtime_error("cannot write " + path);
}

}  // namespace weft::perf
