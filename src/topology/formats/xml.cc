// See xml.h.
#include "src/topology/formats/xml.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "src/base/error.h"

namespace weft {
namespace {

long line_of(const std::string& text, ptrdiff_t offset) {
  const auto end = text.begin() + std::clamp<ptrdiff_t>(offset, 0, std::ssize(text));
  return 1 + std::count(text.begin(), end, '\n');
}

}  // namespace

XmlFile::XmlFile(std::string_view text, std::string where) : text_(text), where_(std::move(where)) {
  // Without parse_doctype the parser skips entity declarations; only the five standard ones exist.
  const auto result = document_.load_buffer(
      text_.data(), text_.size(),
      pugi::parse_escapes | pugi::parse_eol | pugi::parse_wconv_attribute, pugi::encoding_utf8);
  if (!result)
    fail(ncclInvalidArgument, "{}: line {}: not XML: {}", where_, line_of(text_, result.offset),
         result.description());
  if (root().empty()) fail(ncclInvalidArgument, "{}: no XML element", where_);
}

std::string XmlFile::place(const pugi::xml_node& node) const {
  return fmt::format("{}: line {}: <{}>", where_, line_of(text_, node.offset_debug()),
                     std::string_view(node.name()).substr(0, 60));
}

void XmlFile::refuse(const pugi::xml_node& node, const std::string& why) const {
  std::string line = why;
  for (char& c : line)
    if (static_cast<unsigned char>(c) < ' ') c = ' ';
  fail(ncclInvalidArgument, "{}: {}", place(node), line);
}

double XmlFile::number(const pugi::xml_node& node, const char* attribute, double otherwise) const {
  const char* text = node.attribute(attribute).value();
  while (*text == ' ') text++;
  if (*text == '\0') return otherwise;
  char* end = nullptr;
  const double value = std::strtod(text, &end);
  while (*end == ' ') end++;
  if (end == text || *end != '\0' || !std::isfinite(value) || std::abs(value) > 1e12)
    refuse(node, fmt::format("{}=\"{}\" is not a number", attribute,
                             std::string_view(text).substr(0, 60)));
  return value;
}

int XmlFile::integer(const pugi::xml_node& node, const char* attribute, int otherwise) const {
  const double value = number(node, attribute, otherwise);
  if (value != std::floor(value) || std::abs(value) > 1e9)
    refuse(node, fmt::format("{}=\"{}\" is not a whole number", attribute, value));
  return static_cast<int>(value);
}

std::string xml_escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '&':
        out += "&amp;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
    }
  }
  return out;
}

}  // namespace weft
