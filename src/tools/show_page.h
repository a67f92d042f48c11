// The parts of the page of `weft show`; see src/tools/show.
#pragma once

namespace weft {

extern const char* const kShowPage;  // with the comments STYLE, SCRIPT and DATA to replace
extern const char* const kShowStyle;
extern const char* const kShowScript;

}  // namespace weft
