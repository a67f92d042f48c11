// What libweft-synthesis.so exports: the synthesizer as a library of its own, loaded when a machine
// is planned for. C, so that both sides may be built apart. Texts end with a zero.
#pragma once

#include <cstddef>

namespace weft {

inline constexpr const char* kSynthesisLibrary = "libweft-synthesis.so";
inline constexpr const char* kSynthesisSymbol = "weft_synthesize_v2";

// Called once with the schedule as Weft JSON.
using ScheduleSink = void (*)(void* context, const char* text, size_t size);

// What it returns: a schedule, and that is the best it knows; one, with more time there might be a
// better one; or why there is none.
enum SynthesisAnswer : int { kSynthesized = 0, kNotSynthesized = 1, kSynthesisCutShort = 2 };

// The best schedule of `collective` ("all_reduce") for all GPUs of a machine (Weft JSON), an array
// of `bytes` and root 0, looked for for `seconds` at most; 0: the first that can be made, which
// nobody has proved.
using SynthesizeFunction = int (*)(const char* machine, const char* collective, double bytes,
                                   double seconds, ScheduleSink sink, void* context, char* why,
                                   size_t why_size);

}  // namespace weft
