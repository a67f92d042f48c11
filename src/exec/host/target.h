// The host's memory operations for the interpreter: sequentially consistent loads and stores, futex
// bells.
#pragma once

#include "src/exec/host/combine.h"
#include "src/exec/host/combine_coded.h"
#include "src/exec/operation.h"
#include "src/transport/doorbell.h"

namespace weft::host {

struct HostTarget {
  static constexpr int kMostOperands = 64;  // see lower.cc
  static constexpr bool kDecodes = true;
  static constexpr bool kIrregular = true;
  using Coded = CodedOperand;
  // Sequentially consistent, not just acquire/release: see doorbell.cc. Costs the same on a load.
  static uint64_t load(const uint64_t* at) noexcept {
    return __atomic_load_n(at, __ATOMIC_SEQ_CST);
  }
  static void store(uint64_t* at, uint64_t value) noexcept {
    __atomic_store_n(at, value, __ATOMIC_SEQ_CST);
  }
  static uint64_t load_progress(const uint64_t* at) noexcept { return load(at); }
  static void store_progress(uint64_t* at, uint64_t value) noexcept { store(at, value); }
  static void store_head(uint64_t* at, uint64_t value) noexcept { store(at, value); }
  static void store_tail(uint64_t* at, uint64_t value) noexcept { store(at, value); }
  static void finish_writes() noexcept {}  // every store is ordered already
  static const MessageHeader& header(const MessageHeader* at) noexcept { return *at; }
  static void ring(const Bell& bell) noexcept { weft::ring(bell); }
  static const std::byte* map(const RecvPort& port, uint64_t segment) noexcept {
    return port.segments == nullptr ? nullptr : port.segments->map(segment);
  }
  template <typename... Args>
  static void combine(Args&&... args) noexcept {
    host::combine(args...);
  }
  template <typename... Args>
  static void combine_coded(Args&&... args) noexcept {
    host::combine_coded(args...);
  }
};

// For operations without codecs and with blocks of one length. It does not look for others in every
// step.
struct PlainTarget : HostTarget {
  static constexpr bool kDecodes = false;
  static constexpr bool kIrregular = false;
};

}  // namespace weft::host
