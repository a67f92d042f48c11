// MSCCL's XML ("MSCCL-IR"), in the dialects of microsoft/msccl and of Azure's executor and RCCL.
//
// A thread block becomes a lane and a step a Step of the same numbers, so messages about lanes and
// steps can be looked up in the file. A chunk of nchunksperloop is one of ours: where MSCCL counts
// the chunks of all ranks' blocks together (allgather, reducescatter, alltoall, gather, scatter), a
// block has nchunksperloop / ngpus of them, elsewhere nchunksperloop.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "src/schedule/schedule_file.h"

namespace weft {

enum class MscclDialect {
  kAzure,   // minBytes, maxBytes, inplace and outofplace are mandatory; "reducescatter"
  kLegacy,  // microsoft/msccl: one mode a file; "reduce_scatter"
};

ScheduleFile read_msccl_xml(std::string_view text, const std::string& source,
                            std::optional<CollectiveKind> collective = std::nullopt);

// Throws Error(ncclInvalidUsage) for what the format or its runtimes' limits cannot hold: steps
// that reduce from several peers or send to several, memory of peers, tokens, lanes with more than
// one peer in a direction, more than 256 steps a lane, 216 lanes, 32 channels or 72 chunks a step.
std::string write_msccl_xml(const ScheduleFile& file, MscclDialect dialect = MscclDialect::kAzure);

}  // namespace weft
