// How commands take the name of a collective.
#include "src/schedule/collective.h"
#include "src/tools/commands.h"

namespace weft {

CLI::Validator is_collective() {
  return {[](std::string& text) -> std::string {
            if (parse_collective(text)) return {};
            std::string names;
            for (int kind = 0; kind < kCollectiveKinds; kind++)
              names +=
                  (kind > 0 ? ", " : "") + std::string(name(static_cast<CollectiveKind>(kind)));
            return "'" + text + "' is no collective (" + names + ")";
          },
          "COLL"};
}

}  // namespace weft
