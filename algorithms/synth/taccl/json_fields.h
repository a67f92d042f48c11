// Reads JSON objects strictly. Errors name a missing, wrong or unknown field in one line, with the
// file and the element. For the readers of TACCL's files.
#pragma once

#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace weft {

class JsonFields {
 public:
  // Errors begin with `place`: the file and the element.
  JsonFields(const nlohmann::json& object, std::string place,
             std::initializer_list<const char*> known);

  bool has(const char* name) const { return object_.contains(name); }
  const nlohmann::json& any(const char* name) const;
  nlohmann::json object(const char* name) const;
  std::string text(const char* name) const;
  bool flag(const char* name, bool otherwise) const;
  int whole(const char* name, int least, int most) const;
  double number(const char* name, double least) const;
  std::vector<double> numbers(const char* name, double least) const;
  std::vector<int> indices(const nlohmann::json& list, const std::string& name) const;

  [[noreturn]] void refuse(const std::string& name, const std::string& reason) const;
  std::string inside(const char* name) const { return place_ + name + "."; }

 private:
  const nlohmann::json& object_;
  std::string place_;
};

// Throws Error if the text is no JSON object.
nlohmann::json parse_json_object(std::string_view text, const std::string& name);

}  // namespace weft
