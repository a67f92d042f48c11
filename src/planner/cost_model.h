// The cost model of ranks that run on CPU cores (host mode). It predicts the time of a schedule
// from its shape and a few rates. For GPUs and links the simulator (simulator.h) predicts instead.
// Plain data and pure functions.
//
// Ranks share cores. A call takes at least the work of all ranks divided by the cores, and at least
// the work of the busiest rank. A hop adds the time until the next rank notices a message. If ranks
// outnumber cores, that rank must get a core first. Between hosts messages cost more, travel longer
// and share the host's NICs.
//
// Ranks on GPUs with peer access share memory instead of cores. A call takes the time of its loads
// and stores, and every rank that shares a GPU makes each barrier longer.
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
  double call_us = 0.2;      // per call, whatever it does
  double hop_us = 0.1;       // until a rank on a core notices a message
  double switch_us = 1.5;    // until a rank without a core gets one, per rank that shares the core
  double step_us = 0.02;     // per step and slice
  double message_us = 0.35;  // per message sent or received
  // Per megabyte (1e6 bytes) copied, or read and reduced. The three rates are for buffers of all
  // ranks below 256 KiB, at 8 MiB, and above 256 MiB. In between the rate changes gradually.
  double copy_us_mb = 60, copy_mid_us_mb = 100, copy_far_us_mb = 300;
  double reduce_us_mb = 30, reduce_mid_us_mb = 70, reduce_far_us_mb = 220;
  double net_hop_us = 15;      // until a message has crossed the network
  double net_message_us = 6;   // core time to send or receive a message
  double net_us_mb = 200;      // core time per megabyte sent or received
  double packet_us_mb = 0.35;  // GPUs: per megabyte sent or received as packets (flags beside the
                               // data)
  double lane_start_us = 0;    // GPUs of their own: lanes begin so much later than packets
};

// The rates by name, for files and for fitting.
struct RateName {
  std::string_view name;
  double Rates::*rate;
};
inline constexpr std::array<RateName, 16> kRateNames = {{
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
    {"lane_start_us", &Rates::lane_start_us},
}};

// How far off the model is: measured over predicted time of a plan ("all_reduce ring"), at one
// number of ranks and bytes.
struct FactorPoint {
  int ranks = 0;
  double bytes = 0, factor = 1;
  bool operator==(const FactorPoint&) const = default;
};
using PlanFactors = std::map<std::string, std::vector<FactorPoint>>;
std::string factor_key(CollectiveKind kind, std::string_view plan);
// Interpolates on the logarithms of ranks and bytes. Beyond the points it takes the nearest; 1
// without points.
double factor_at(const PlanFactors& factors, const Collective& collective, std::string_view plan,
                 double bytes);

// Whether ranks of a host should pass addresses of large messages instead of copying. In a large
// reduce only the root would read, far from its core. If the other ranks copy into their FIFOs,
// they bring the data closer in parallel.
inline constexpr double kCopiedReduce = 4u << 20;
inline bool lending_pays(CollectiveKind kind, double bytes) {
  return kind != CollectiveKind::kReduce || bytes < kCopiedReduce;
}

// Where ranks run and how the executor divides their data. Equal on all ranks.
struct HostSetting {
  int cores = 1;                  // shared by the ranks of a host; on GPUs, the number of GPUs
  bool on_gpus = false;           // GPUs with peer access to each other
  bool one_process = true;        // memory can always be lent
  std::vector<int> hosts;         // host of every rank; empty: all share one
  bool pretended_hosts = false;   // several hosts share one machine's cores (NCCL_HOSTID)
  double nic_gbps = 0;            // of each host; 0: unknown, no limit
  double slice_bytes = 64 << 10;  // most bytes of a chunk that one step moves at once
  double lend_bytes = 8192;       // messages of at least this size are lent
  std::string no_cpu_nodes;       // why plans with CPU nodes are not chosen; empty: they may be
};

// Microseconds for an array of `bytes` (the whole array, as in nccl-tests).
double predict(const ScheduleShape& shape, const Collective& collective, double bytes,
               const HostSetting& setting, const Rates& rates);

}  // namespace weft
