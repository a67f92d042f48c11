// The parts of the page of `weft show`; see src/tools/show.
#pragma once

namespace weft {

extern const char* const kShowPage;  // the comments STYLE, SCRIPT and DATA are replaced
extern const char* const kShowStyle;
extern const char* const kShowScript;

}  // namespace weft
