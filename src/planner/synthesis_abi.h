// What libweft-synthesis.so exports: the synthesizer as a library of its own, loaded when a machine
// is planned for. C, so that both sides may be built apart. Texts end with a zero.
#pragma once

#include <cstddef>

namespace weft {

inline constexpr const char* kSynthesisLibrary = "libweft-synthesis.so";
inline constexpr const char* kSynthesisSymbol = "weft_synthesize_v1";

// Called once with the schedule as Weft JSON.
using ScheduleSink = void (*)(void* context, const char* text, size_t size);

// The best schedule of `collective` ("all_reduce") for all GPUs of a machine (Weft JSON), an array
// of `bytes` and root 0, looked for for `seconds` at most. Returns 0, or 1 and why not.
using SynthesizeFunction = int (*)(const char* machine, const char* collective, double bytes,
                                   double seconds, ScheduleSink sink, void* context, char* why,
                                   size_t why_size);

}  // namespace weft
