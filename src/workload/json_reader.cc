// See json_reader.h.
#include "src/workload/json_reader.h"

#include <cmath>
#include <set>

#include "src/base/error.h"

namespace weft::workload {

nlohmann::json parse_json(std::string_view text, const std::string& where) {
  try {
    return nlohmann::json::parse(text.begin(), text.end());
  } catch (const nlohmann::json::exception& error) {
    std::string what = error.what();
    if (const auto at = what.find("] "); at != std::string::npos) what.erase(0, at + 2);
    for (char& c : what)
      if (static_cast<unsigned char>(c) < ' ' || c == '\x7f') c = ' ';
    fail(ncclInvalidArgument, "{}: not JSON: {}", where, what.substr(0, 200));
  }
}

// The text is JSON: brackets match outside of strings.
std::vector<int> element_lines(std::string_view text, std::string_view name) {
  std::vector<int> lines;
  int line = 1, depth = 0;
  std::string last;  // string at depth 1
  bool inside = false, fresh = false;
  for (size_t i = 0; i < text.size(); i++) {
    const char c = text[i];
    if (c == '\n') line++;
    if (c == ' ' || c == '\t' || c == '\r' || c == '\n') continue;
    if (inside && depth == 2 && fresh && c != ']') {
      lines.push_back(line);
      fresh = false;
    }
    if (c == '"') {
      const size_t from = i + 1;
      for (i++; i < text.size() && text[i] != '"'; i++)
        if (text[i] == '\\') i++;
      if (depth == 1) last = text.substr(from, std::min(i, text.size()) - from);
    } else if (c == '[' || c == '{') {
      depth++;
      if (depth == 2) inside = c == '[' && last == name;
      if (depth == 2) fresh = true;
    } else if (c == ']' || c == '}') {
      depth--;
      if (depth == 1) inside = false;
    } else if (c == ',' && depth == 2) {
      fresh = true;
    }
  }
  return lines;
}

void JsonReader::refuse(const char* name, const std::string& wanted) const {
  fail(ncclInvalidArgument, "{}: '{}' must be {}", place, name, wanted);
}

const nlohmann::json* JsonReader::find(const char* name) const {
  const auto it = object.find(name);
  return it == object.end() ? nullptr : &*it;
}

std::string JsonReader::text(const char* name) const {
  const nlohmann::json* value = find(name);
  if (value == nullptr) fail(ncclInvalidArgument, "{}: '{}' is missing", place, name);
  if (!value->is_string()) refuse(name, "a string");
  return value->get<std::string>();
}

std::string JsonReader::text(const char* name, const std::string& otherwise) const {
  return find(name) == nullptr ? otherwise : text(name);
}

double JsonReader::number(const char* name) const {
  const nlohmann::json* value = find(name);
  if (value == nullptr) fail(ncclInvalidArgument, "{}: '{}' is missing", place, name);
  if (!value->is_number()) refuse(name, "a number");
  const double result = value->get<double>();
  if (!std::isfinite(result) || result < 0 || result > 1e18) refuse(name, "a number, not negative");
  return result;
}

double JsonReader::number(const char* name, double otherwise) const {
  return find(name) == nullptr ? otherwise : number(name);
}

int JsonReader::integer(const char* name) const {
  const double value = number(name);
  if (value != std::floor(value) || value > 1 << 28) refuse(name, "a whole number in range");
  return static_cast<int>(value);
}

int JsonReader::integer(const char* name, int otherwise) const {
  return find(name) == nullptr ? otherwise : integer(name);
}

bool JsonReader::flag(const char* name, bool otherwise) const {
  const nlohmann::json* value = find(name);
  if (value == nullptr) return otherwise;
  if (!value->is_boolean()) refuse(name, "true or false");
  return value->get<bool>();
}

std::vector<int> JsonReader::ranks(const nlohmann::json& list, int nranks,
                                   const std::string& of) const {
  if (!list.is_array() || list.empty())
    fail(ncclInvalidArgument, "{}: {} must be a list of ranks", place, of);
  std::vector<int> all;
  std::set<int> seen;
  for (const auto& entry : list) {
    if (!entry.is_number_integer())
      fail(ncclInvalidArgument, "{}: {} must be a list of ranks", place, of);
    const auto rank = entry.get<int64_t>();
    if (rank < 0 || rank >= nranks)
      fail(ncclInvalidArgument, "{}: {} names rank {}; there are {} ranks", place, of, rank,
           nranks);
    if (!seen.insert(static_cast<int>(rank)).second)
      fail(ncclInvalidArgument, "{}: {} names rank {} twice", place, of, rank);
    all.push_back(static_cast<int>(rank));
  }
  return all;
}

}  // namespace weft::workload
