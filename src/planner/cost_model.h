// The cost model of ranks that are driven by CPU cores (host mode): how long a schedule takes, from
// its shape and a few rates. Where GPUs and links do the work, the simulator (simulator.h) predicts
// instead. Plain data and pure functions.
//
// Cores are what ranks share: all that ranks do together takes at least as long as that work
// divided by the cores, and no less than what the busiest rank does. A hop adds the time in which
// the next rank notices a message; where ranks outnumber cores it must be given a core first.
// Between hosts messages cost more, travel longer and share the host's NICs.
//
// Ranks on GPUs that reach each other's memory share that memory instead: a call takes as long as
// its loads and stores, and every rank that shares a GPU makes each meeting longer.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "src/planner/schedule_shape.h"
#include "src/schedule/collective.h"

namespace weft {

struct Rates {
  double call_us = 0.2;      // a call, whatever it does
  double hop_us = 0.1;       // until a rank that has a core notices a message
  double switch_us = 1.5;    // until a rank that has none got one, per rank beyond the cores
  double step_us = 0.02;     // a step, per slice
  double message_us = 0.35;  // a message sent or received
  // A megabyte (1e6 bytes) copied, or read and reduced: while the buffers of all ranks take less
  // than a quarter MiB, at 8 MiB, and from 256 MiB on; between those it changes gradually.
  double copy_us_mb = 60, copy_mid_us_mb = 100, copy_far_us_mb = 300;
  double reduce_us_mb = 30, reduce_mid_us_mb = 70, reduce_far_us_mb = 220;
  double net_hop_us = 15;      // until a message has crossed the network
  double net_message_us = 6;   // what sending or receiving one costs a core
  double net_us_mb = 200;      // what a megabyte of it costs a core
  double packet_us_mb = 0.35;  // GPUs: a megabyte sent or received with flags beside the data
};

// The rates by name, for files and for fitting.
struct RateName {
  std::string_view name;
  double Rates::*rate;
};
inline constexpr std::array<RateName, 15> kRateNames = {{
    {"call_us", &Rates::call_us},
    {"hop_us", &Rates::hop_us},
    {"switch_us", &Rates::switch_us},
    {"step_us", &Rates::step_us},
    {"message_us", &Rates::message_us},
    {"copy_us_mb", &Rates::copy_us_mb},
    {"copy_mid_us_mb", &Rates::copy_mid_us_mb},
    {"copy_far_us_mb", &Rates::copy_far_us_mb},
    {"reduce_us_mb", &Rates::reduce_us_mb},
    {"reduce_mid_us_mb", &Rates::reduce_mid_us_mb},
    {"reduce_far_us_mb", &Rates::reduce_far_us_mb},
    {"net_hop_us", &Rates::net_hop_us},
    {"net_message_us", &Rates::net_message_us},
    {"net_us_mb", &Rates::net_us_mb},
    {"packet_us_mb", &Rates::packet_us_mb},
}};

// How far off the model is where that was measured: measured over predicted time of a plan
// ("all_reduce ring"), for so many ranks and bytes.
struct FactorPoint {
  int ranks = 0;
  double bytes = 0, factor = 1;
  bool operator==(const FactorPoint&) const = default;
};
using PlanFactors = std::map<std::string, std::vector<FactorPoint>>;
std::string factor_key(CollectiveKind kind, std::string_view plan);
// Between the points along the logarithms of both, beyond them the nearest; 1 where there are none.
double factor_at(const PlanFactors& factors, const Collective& collective, std::string_view plan,
                 double bytes);

// Whether ranks of a host should hand over addresses of large messages. Of a large reduce the root
// alone would read, far from its core; others who copy into their FIFOs bring the data closer
// meanwhile.
inline constexpr double kCopiedReduce = 4u << 20;
inline bool lending_pays(CollectiveKind kind, double bytes) {
  return kind != CollectiveKind::kReduce || bytes < kCopiedReduce;
}

// Where ranks run and how the executor cuts their data. Equal on all ranks.
struct HostSetting {
  int cores = 1;                  // that the ranks of one host share; of GPUs, how many there are
  bool on_gpus = false;           // which reach each other's memory
  bool one_process = true;        // memory can always be lent
  std::vector<int> hosts;         // of every rank; empty: all share one
  bool pretended_hosts = false;   // several of them share one machine's cores (NCCL_HOSTID)
  double nic_gbps = 0;            // of each host; 0: unknown, no limit
  double slice_bytes = 64 << 10;  // most bytes of a chunk that one step moves at once
  double lend_bytes = 8192;       // messages from this size on are lent
  std::string no_cpu_nodes;       // why plans with CPU nodes are not chosen; empty: they may be
};

// Microseconds for an array of `bytes` (the whole array, as in nccl-tests).
double predict(const ScheduleShape& shape, const Collective& collective, double bytes,
               const HostSetting& setting, const Rates& rates);

}  // namespace weft
