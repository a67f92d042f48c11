// What our XML readers share: parsing without entities or documents that grow, and errors that name
// file, line and element. Only readers of src/topology include it.
#pragma once

#include <pugixml.hpp>
#include <string>
#include <string_view>

namespace weft {

class XmlFile {
 public:
  // Throws Error if the text is not XML.
  XmlFile(std::string_view text, std::string where);

  pugi::xml_node root() const { return document_.document_element(); }
  // "file.xml: line 12: <gpu>"
  std::string place(const pugi::xml_node& node) const;
  [[noreturn]] void refuse(const pugi::xml_node& node, const std::string& why) const;

  // An attribute as a number; `otherwise` where it is absent or empty, an error where it is not a
  // number.
  double number(const pugi::xml_node& node, const char* attribute, double otherwise) const;
  int integer(const pugi::xml_node& node, const char* attribute, int otherwise) const;

 private:
  std::string text_, where_;
  pugi::xml_document document_;
};

// <, >, & and quotes written as entities, control characters as spaces.
std::string xml_escaped(std::string_view text);

}  // namespace weft
