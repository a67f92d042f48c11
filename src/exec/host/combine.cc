// Block-wise kernels: a block of every source stays in the L1 cache while it is combined and
// written.
#include "src/exec/host/combine.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "src/exec/host/numbers.h"

namespace weft::host {
namespace {

constexpr uint64_t kCopyBlock = 16384;   // bytes
constexpr uint64_t kReduceBlock = 2048;  // elements

struct Sum {
  template <typename T>
  static T apply(T a, T b) {
    if constexpr (std::is_integral_v<T>) {
      using U = std::make_unsigned_t<T>;
      return static_cast<T>(static_cast<U>(static_cast<U>(a) + static_cast<U>(b)));
    } else {
      return a + b;
    }
  }
};
struct Prod {
  template <typename T>
  static T apply(T a, T b) {
    if constexpr (std::is_integral_v<T>) {
      return static_cast<T>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
    } else {
      return a * b;
    }
  }
};
struct Max {
  template <typename T>
  static T apply(T a, T b) {
    return a < b ? b : a;
  }
};
struct Min {
  template <typename T>
  static T apply(T a, T b) {
    return b < a ? b : a;
  }
};

struct Job {
  const Reduction& reduction;
  const std::byte* const* sources;
  uint32_t source_count;
  uint64_t raw_sources;
  bool completes;
  std::byte* const* destinations;
  uint32_t destination_count;
  uint64_t elements;
};

void copy(const Job& job, size_t element) {
  const uint64_t bytes = job.elements * element;
  const std::byte* source = job.sources[0];
  if (job.destination_count == 1) {
    if (job.destinations[0] != source) std::memcpy(job.destinations[0], source, bytes);
    return;
  }
  for (uint64_t at = 0; at < bytes; at += kCopyBlock) {
    const uint64_t size = std::min(kCopyBlock, bytes - at);
    for (uint32_t d = 0; d < job.destination_count; d++)
      if (job.destinations[d] != source) std::memcpy(job.destinations[d] + at, source + at, size);
  }
}

// The number of ranks may not fit into a small type.
template <typename T>
T divide(T sum, uint32_t by) {
  if constexpr (std::is_integral_v<T>) {
    using Wide = std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>;
    return static_cast<T>(static_cast<Wide>(sum) / static_cast<Wide>(by));
  } else {
    return sum / static_cast<T>(by);
  }
}

template <typename Type>
typename Type::Accumulator scalar_of(const Reduction& reduction) {
  if (reduction.scale != 0) return static_cast<typename Type::Accumulator>(reduction.scale);
  typename Type::Element element;
  std::memcpy(&element, &reduction.scalar_bits, sizeof element);
  return Type::load(element);
}

// Adds the sources from `first` on. Begun: `sum` holds the earlier ones. Ends: the result goes to
// destination 0, otherwise to `sum`.
template <typename Type, typename Op, uint32_t Count, bool Begun, bool Ends>
void add_up(const Job& job, uint32_t first, uint64_t at, uint64_t n,
            typename Type::Accumulator* sum) {
  using Element = typename Type::Element;
  const Element* sources[Count];
  for (uint32_t s = 0; s < Count; s++)
    sources[s] = reinterpret_cast<const Element*>(job.sources[first + s]) + at;
  auto* out = reinterpret_cast<Element*>(job.destinations[0]) + at;
#pragma GCC ivdep
  for (uint64_t i = 0; i < n; i++) {
    typename Type::Accumulator value = Type::load(sources[0][i]);
    if constexpr (Begun) value = Op::apply(sum[i], value);
    for (uint32_t s = 1; s < Count; s++) value = Op::apply(value, Type::load(sources[s][i]));
    if constexpr (Ends) {
      out[i] = Type::store(value);
    } else {
      sum[i] = value;
    }
  }
}

// The last one to four sources; at least two if there are none before.
template <typename Type, typename Op, bool Begun>
void add_up_rest(const Job& job, uint32_t first, uint64_t at, uint64_t n,
                 typename Type::Accumulator* sum) {
  switch (job.source_count - first) {
    case 1:
      if constexpr (Begun) add_up<Type, Op, 1, Begun, true>(job, first, at, n, sum);
      return;
    case 2:
      return add_up<Type, Op, 2, Begun, true>(job, first, at, n, sum);
    case 3:
      return add_up<Type, Op, 3, Begun, true>(job, first, at, n, sum);
    default:
      return add_up<Type, Op, 4, Begun, true>(job, first, at, n, sum);
  }
}

// Plain sources, four at a time. Buffers of ranks often have the same alignment, so their lines
// compete for the same cache set. A set has room for about four.
template <typename Type, typename Op>
void reduce_plain(const Job& job, uint64_t at, uint64_t n) {
  if (job.source_count <= 4) return add_up_rest<Type, Op, false>(job, 0, at, n, nullptr);
  typename Type::Accumulator sum[kReduceBlock];
  add_up<Type, Op, 4, false, false>(job, 0, at, n, sum);
  uint32_t s = 4;
  for (; s + 4 < job.source_count; s += 4) add_up<Type, Op, 4, true, false>(job, s, at, n, sum);
  add_up_rest<Type, Op, true>(job, s, at, n, sum);
}

// Reductions with scaled sources or a divided result.
template <typename Type, typename Op>
void reduce_scaled(const Job& job, uint64_t at, uint64_t n) {
  using Element = typename Type::Element;
  using Accumulator = typename Type::Accumulator;
  Accumulator sum[kReduceBlock];
  for (uint32_t s = 0; s < job.source_count; s++) {
    const auto* source = reinterpret_cast<const Element*>(job.sources[s]) + at;
    const bool scaled = job.reduction.premultiply && ((job.raw_sources >> s) & 1u) != 0;
    if (scaled) {
      const Accumulator scalar = scalar_of<Type>(job.reduction);
      for (uint64_t i = 0; i < n; i++) {
        // Rounded to the type at once: other ranks get the value as a message of that type, and all
        // must agree.
        const Accumulator value =
            Type::load(Type::store(Prod::apply(Type::load(source[i]), scalar)));
        sum[i] = s == 0 ? value : Op::apply(sum[i], value);
      }
    } else if (s == 0) {
      for (uint64_t i = 0; i < n; i++) sum[i] = Type::load(source[i]);
    } else {
      for (uint64_t i = 0; i < n; i++) sum[i] = Op::apply(sum[i], Type::load(source[i]));
    }
  }
  if (job.completes && job.reduction.divide_by > 0) {
    for (uint64_t i = 0; i < n; i++) sum[i] = divide(sum[i], job.reduction.divide_by);
  }
  auto* out = reinterpret_cast<Element*>(job.destinations[0]) + at;
  for (uint64_t i = 0; i < n; i++) out[i] = Type::store(sum[i]);
}

template <typename Type, typename Op>
void reduce(const Job& job) {
  using Element = typename Type::Element;
  const bool plain = !(job.reduction.premultiply && job.raw_sources != 0) &&
                     !(job.completes && job.reduction.divide_by > 0);
  for (uint64_t at = 0; at < job.elements; at += kReduceBlock) {
    const uint64_t n = std::min(kReduceBlock, job.elements - at);
    if (plain) {
      reduce_plain<Type, Op>(job, at, n);
    } else {
      reduce_scaled<Type, Op>(job, at, n);
    }
    const std::byte* first = job.destinations[0] + at * sizeof(Element);
    for (uint32_t d = 1; d < job.destination_count; d++)
      std::memcpy(job.destinations[d] + at * sizeof(Element), first, n * sizeof(Element));
  }
}

template <typename Type>
void dispatch_op(const Job& job) {
  switch (job.reduction.op) {
    case ncclProd:
      return reduce<Type, Prod>(job);
    case ncclMax:
      return reduce<Type, Max>(job);
    case ncclMin:
      return reduce<Type, Min>(job);
    default:
      return reduce<Type, Sum>(job);
  }
}

}  // namespace

void combine(const Reduction& reduction, const std::byte* const* sources, uint32_t source_count,
             uint64_t raw_sources, bool completes, std::byte* const* destinations,
             uint32_t destination_count, uint64_t elements) noexcept {
  const Job job{reduction, sources,      source_count,      raw_sources,
                completes, destinations, destination_count, elements};
  if (source_count == 1 && !(reduction.premultiply && raw_sources != 0))
    return copy(job, element_size(reduction.type));
  switch (reduction.type) {
    case ncclInt8:
      return dispatch_op<Native<int8_t>>(job);
    case ncclUint8:
      return dispatch_op<Native<uint8_t>>(job);
    case ncclInt32:
      return dispatch_op<Native<int32_t>>(job);
    case ncclUint32:
      return dispatch_op<Native<uint32_t>>(job);
    case ncclInt64:
      return dispatch_op<Native<int64_t>>(job);
    case ncclUint64:
      return dispatch_op<Native<uint64_t>>(job);
    case ncclFloat16:
      return dispatch_op<Half>(job);
    case ncclFloat32:
      return dispatch_op<Native<float>>(job);
    case ncclFloat64:
      return dispatch_op<Native<double>>(job);
    case ncclBfloat16:
      return dispatch_op<BFloat16>(job);
    case ncclFloat8e4m3:
      return dispatch_op<Float8E4M3>(job);
    default:
      return dispatch_op<Float8E5M2>(job);
  }
}

}  // namespace weft::host
