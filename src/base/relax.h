// For polling loops.
#pragma once

namespace weft {

// Leaves more of the core to the hyperthread that shares it.
inline void relax() {
#if defined(__aarch64__)
  asm volatile("yield");
#elif defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace weft
