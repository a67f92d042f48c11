// The plain reference: inputs whose partial results are all exact, and their expected reduction.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/support/number_types.h"

namespace weft::test {

enum class Reduction { kSum, kProd, kMax, kMin, kAvg, kPreMulSum };

const std::vector<Reduction>& all_reductions();
const char* name_of(Reduction reduction);
// The built-in operator. kPreMulSum has none: the caller creates it per communicator.
ncclRedOp_t built_in(Reduction reduction);

// The scalar that `rank` gives to its PreMulSum operator, as bits of `type`. Ranks may differ.
uint64_t premul_scalar(const NumberType& type, int rank);

// One element of every rank's input. Any order of reduction gives the same bits. For averages of
// floats that holds only if nranks is a power of two (see reduction_is_exact).
std::vector<uint64_t> reduction_column(const NumberType& type, Reduction reduction, int nranks,
                                       uint64_t salt, uint64_t index);

// Whether results must match bit for bit. If not, close_enough() allows for rounding.
bool reduction_is_exact(const NumberType& type, Reduction reduction, int nranks);

// The reduction of one column, rounded once.
uint64_t reduce_column(const NumberType& type, Reduction reduction,
                       const std::vector<uint64_t>& column);

// Whether `got` is an acceptable result for inputs `column` when every step may round.
bool close_enough(const NumberType& type, Reduction reduction, const std::vector<uint64_t>& column,
                  uint64_t got);

// Arbitrary bits of an input that is moved and never computed with.
uint64_t moved_element(const NumberType& type, int rank, uint64_t salt, uint64_t index);

}  // namespace weft::test
