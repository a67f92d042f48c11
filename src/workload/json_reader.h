// Reads members of JSON objects for files of workloads. Errors name the place and the member.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace weft::workload {

nlohmann::json parse_json(std::string_view text, const std::string& where);

// The line of every element of the list `name` of the outermost object.
std::vector<int> element_lines(std::string_view text, std::string_view name);

// A member that must be there has no default.
struct JsonReader {
  const nlohmann::json& object;
  std::string place;  // "file: line 3: operation 'f0'"

  [[noreturn]] void refuse(const char* name, const std::string& wanted) const;
  const nlohmann::json* find(const char* name) const;  // nullptr: missing
  std::string text(const char* name) const;
  std::string text(const char* name, const std::string& otherwise) const;
  double number(const char* name) const;  // never negative
  double number(const char* name, double otherwise) const;
  int integer(const char* name) const;  // never negative
  int integer(const char* name, int otherwise) const;
  bool flag(const char* name, bool otherwise) const;
  std::vector<int> ranks(const nlohmann::json& list, int nranks, const std::string& of) const;
};

}  // namespace weft::workload
