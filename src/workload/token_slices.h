// TeraPipe's dynamic programming: where to cut a sequence. For m sequences, a pipeline of K stages
// takes m times the sum of the slices' times plus K-1 times the longest. A pure function.
#pragma once

#include <functional>
#include <vector>

namespace weft::workload {

// time(low, high): of the slice between two shares of the sequence. Cuts lie on multiples of
// 1 / grains. Returns the inner cuts.
std::vector<double> best_slices(int grains, int stages, int sequences,
                                const std::function<double(double low, double high)>& time);

}  // namespace weft::workload
