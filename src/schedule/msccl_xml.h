// MSCCL's XML ("MSCCL-IR"), in two dialects: microsoft/msccl, and Azure's executor and RCCL.
//
// A thread block becomes a lane and a step becomes a Step, with the same numbers. So errors about
// lanes and steps can be looked up in the file. A chunk of nchunksperloop is a chunk here. For
// allgather, reducescatter, alltoall, gather and scatter MSCCL counts the chunks of all ranks'
// blocks together, so a block has nchunksperloop / ngpus chunks. Otherwise it has nchunksperloop.
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

// Throws Error(ncclInvalidUsage) for schedules that the format or its runtimes cannot hold. They
// cannot hold a step that reduces from several peers or sends to several, peer memory, or tokens.
// Limits: one peer per lane and direction, 256 steps a lane, 216 lanes, 32 channels, 72 chunks a
// step.
std::string write_msccl_xml(const ScheduleFile& file, MscclDialect dialect = MscclDialect::kAzure);

}  // namespace weft
