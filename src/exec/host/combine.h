// Data movement on the host: copy, or reduce several sources, to one or more destinations.
#pragma once

#include <cstddef>
#include <cstdint>

#include "src/exec/datatype.h"

namespace weft::host {

// destinations[*] = sources[0] op sources[1] op ... for `elements` elements. A destination may be
// one of the sources, but must not overlap one partly. If the reduction pre-multiplies, sources in
// `raw_sources` are multiplied by the scalar first. If `completes` is set, an average divides.
void combine(const Reduction& reduction, const std::byte* const* sources, uint32_t source_count,
             uint64_t raw_sources, bool completes, std::byte* const* destinations,
             uint32_t destination_count, uint64_t elements) noexcept;

}  // namespace weft::host
