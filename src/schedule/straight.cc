#include "src/schedule/straight.h"
namespace weft {
std::vector<StraightPlace> straight_places(const VerifiedSchedule&, int) { return {}; }
}
