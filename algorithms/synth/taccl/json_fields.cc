// See json_fields.h.
#include "algorithms/synth/taccl/json_fields.h"

#include <algorithm>
#include <cmath>

#include "src/base/error.h"

namespace weft {

using nlohmann::json;

JsonFields::JsonFields(const json& object, std::string place,
                       std::initializer_list<const char*> known)
    : object_(object), place_(std::move(place)) {
  for (const auto& member : object.items()) {
    const std::string& name = member.key();
    if (std::none_of(known.begin(), known.end(), [&](const char* k) { return name == k; }))
      refuse(name.substr(0, 60), "is unknown");
  }
}

void JsonFields::refuse(const std::string& name, const std::string& reason) const {
  fail(ncclInvalidArgument, "{}{} {}", place_, name, reason);
}

const json& JsonFields::any(const char* name) const {
  const auto it = object_.find(name);
  if (it == object_.end()) refuse(name, "is missing");
  return *it;
}

json JsonFields::object(const char* name) const {
  const json& value = any(name);
  if (!value.is_object()) refuse(name, "must be an object");
  return value;
}

std::string JsonFields::text(const char* name) const {
  const json& value = any(name);
  if (!value.is_string()) refuse(name, "must be a string");
  return value.get<std::string>();
}

bool JsonFields::flag(const char* name, bool otherwise) const {
  if (!has(name)) return otherwise;
  if (!any(name).is_boolean()) refuse(name, "must be true or false");
  return any(name).get<bool>();
}

int JsonFields::whole(const char* name, int least, int most) const {
  const json& value = any(name);
  if (!value.is_number_integer() || value < least || value > most)
    refuse(name, fmt::format("must be a whole number from {} to {}", least, most));
  return value.get<int>();
}

double JsonFields::number(const char* name, double least) const {
  const json& value = any(name);
  if (!value.is_number() || !std::isfinite(value.get<double>()) || value.get<double>() < least)
    refuse(name, fmt::format("must be a number, at least {}", least));
  return value.get<double>();
}

std::vector<double> JsonFields::numbers(const char* name, double least) const {
  const json& list = any(name);
  if (!list.is_array() || list.empty()) refuse(name, "must be a list of numbers");
  std::vector<double> result;
  for (const json& value : list) {
    if (!value.is_number() || !std::isfinite(value.get<double>()) || value.get<double>() < least)
      refuse(fmt::format("{}[{}]", name, result.size()),
             fmt::format("must be a number, at least {}", least));
    result.push_back(value.get<double>());
  }
  return result;
}

std::vector<int> JsonFields::indices(const json& list, const std::string& name) const {
  if (!list.is_array() || list.empty()) refuse(name, "must be a list of GPUs");
  std::vector<int> result;
  for (const json& value : list) {
    if (!value.is_number_integer() || value < 0 || value > 65535)
      refuse(fmt::format("{}[{}]", name, result.size()), "must be the number of a GPU");
    const int gpu = value.get<int>();
    if (std::find(result.begin(), result.end(), gpu) != result.end())
      refuse(name, fmt::format("names GPU {} twice", gpu));
    result.push_back(gpu);
  }
  return result;
}

json parse_json_object(std::string_view text, const std::string& name) {
  json parsed = json::parse(text.begin(), text.end(), nullptr, false);
  if (parsed.is_discarded()) fail(ncclInvalidArgument, "{}: not JSON", name);
  if (!parsed.is_object()) fail(ncclInvalidArgument, "{}: must be an object", name);
  return parsed;
}

}  // namespace weft
