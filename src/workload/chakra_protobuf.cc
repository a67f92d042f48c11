// See chakra_protobuf.h.
#include "src/workload/chakra_protobuf.h"

#include <cstring>

#include "src/base/error.h"

namespace weft::workload {
namespace {

using json = nlohmann::json;

// protobuf's wire format: fields with a number and a wire type.
class WireReader {
 public:
  WireReader(std::string_view bytes, const std::string& where) : bytes_(bytes), where_(where) {}

  bool done() const { return at_ == bytes_.size(); }

  uint64_t varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const auto byte = static_cast<unsigned char>(take(1)[0]);
      value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if ((byte & 0x80) == 0) return value;
    }
    refuse();
  }

  std::string_view block() { return take(varint()); }

  // The next field: its number, and its value as a number or as bytes.
  struct Field {
    uint64_t number = 0;
    bool is_block = false;
    uint64_t value = 0;
    std::string_view bytes;
  };
  Field field() {
    const uint64_t key = varint();
    Field found;
    found.number = key >> 3;
    switch (key & 7) {
      case 0:
        found.value = varint();
        return found;
      case 1:
        found.bytes = take(8);
        return found;
      case 2:
        found.is_block = true;
        found.bytes = block();
        return found;
      case 5:
        found.bytes = take(4);
        return found;
      default:
        refuse();
    }
  }

  WireReader inside(std::string_view bytes) const { return {bytes, where_}; }

 private:
  std::string_view take(uint64_t count) {
    if (count > bytes_.size() - at_) refuse();
    const std::string_view found = bytes_.substr(at_, count);
    at_ += count;
    return found;
  }
  [[noreturn]] void refuse() const {
    fail(ncclInvalidArgument, "{}: byte {}: neither JSON nor a Chakra trace in protobuf", where_,
         at_);
  }

  std::string_view bytes_;
  const std::string& where_;
  size_t at_ = 0;
};

// Numbers, booleans and strings; lists are left out.
json attribute_of(WireReader reader) {
  json made = json::object();
  while (!reader.done()) {
    const auto field = reader.field();
    if (field.number == 1) made["name"] = std::string(field.bytes);
    // int32, int64, uint32, uint64, bool
    for (const uint64_t plain : {7, 9, 11, 13, 27})
      if (field.number == plain && !field.is_block)
        made["int64_val"] = static_cast<int64_t>(field.value);
    if (field.number == 29) made["string_val"] = std::string(field.bytes);
    if (field.number == 3 && field.bytes.size() == sizeof(double)) {
      double value = 0;
      std::memcpy(&value, field.bytes.data(), sizeof(value));
      made["double_val"] = value;
    }
  }
  return made;
}

// Packed or one by one.
void take_numbers(const WireReader& reader, const WireReader::Field& field, json& list) {
  if (!field.is_block) {
    list.push_back(field.value);
    return;
  }
  for (WireReader packed = reader.inside(field.bytes); !packed.done();)
    list.push_back(packed.varint());
}

json node_of(WireReader reader) {
  json node = {{"id", 0}, {"type", 0}, {"data_deps", json::array()}, {"attr", json::array()}};
  while (!reader.done()) {
    const auto field = reader.field();
    switch (field.number) {
      case 1:
        node["id"] = field.value;
        break;
      case 2:
        node["name"] = std::string(field.bytes);
        break;
      case 3:
        node["type"] = field.value;
        break;
      case 4:  // control and data dependencies: both are waited for
      case 5:
        take_numbers(reader, field, node["data_deps"]);
        break;
      case 7:
        node["duration_micros"] = field.value;
        break;
      case 10:
        node["attr"].push_back(attribute_of(reader.inside(field.bytes)));
        break;
      default:
        break;
    }
  }
  return node;
}

}  // namespace

json chakra_nodes(std::string_view bytes, const std::string& where) {
  WireReader reader(bytes, where);
  json nodes = json::array();
  for (bool first = true; !reader.done(); first = false) {
    const std::string_view message = reader.block();
    if (!first) nodes.push_back(node_of(reader.inside(message)));
  }
  return nodes;
}

}  // namespace weft::workload
