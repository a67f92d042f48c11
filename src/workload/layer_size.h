// What a layer of a training costs a rank. A pure function.
#pragma once

#include "src/workload/training.h"

namespace weft::workload {

// For one microbatch.
struct LayerSize {
  double tokens = 0;
  double parameters = 0;  // of the whole layer
  double attention_us = 0, mlp_us = 0;
  double context = 0;     // the share of attention that grows with the tokens before
  double activation = 0;  // bytes
};
LayerSize size_of_layer(const Training& training);

}  // namespace weft::workload
