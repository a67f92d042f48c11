// The interface of libweft-synthesis.so: the synthesizer as a separate library, loaded to plan for
// a machine. Plain data only, so that both sides can be built separately: a change to it, LaneCosts
// included, needs another symbol. Texts end with a zero.
#pragma once

#include <cstddef>

#include "src/simulator/lane_cut.h"

namespace weft {

inline constexpr const char* kSynthesisLibrary = "libweft-synthesis.so";
inline constexpr const char* kSynthesisSymbol = "weft_synthesize_v3";

// Called once with the schedule as Weft JSON.
using ScheduleSink = void (*)(void* context, const char* text, size_t size);

// The return value: the best schedule; no schedule, `why` says why; or a schedule that more time
// might improve.
enum SynthesisAnswer : int { kSynthesized = 0, kNotSynthesized = 1, kSynthesisCutShort = 2 };

// The best schedule of `collective` ("all_reduce") for all GPUs of a machine (Weft JSON), an array
// of `bytes` and root 0. Without costs only links count. Searches for at most `seconds`. 0: the
// first schedule possible, not proved.
using SynthesizeFunction = int (*)(const char* machine, const char* collective, double bytes,
                                   const LaneCosts* costs, double seconds, ScheduleSink sink,
                                   void* context, char* why, size_t why_size);

}  // namespace weft
