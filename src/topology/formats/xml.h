// Shared by the XML readers: parsing without custom entities, so that documents cannot grow, and
// errors that name file, line and element. Only readers of src/topology include it.
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

  // An attribute as a number. `otherwise` if it is absent or empty; an error if it is no number.
  double number(const pugi::xml_node& node, const char* attribute, double otherwise) const;
  int integer(const pugi::xml_node& node, const char* attribute, int otherwise) const;

 private:
  std::string text_, where_;
  pugi::xml_document document_;
};

// Writes <, >, & and quotes as entities, and control characters as spaces.
std::string xml_escaped(std::string_view text);

}  // namespace weft
