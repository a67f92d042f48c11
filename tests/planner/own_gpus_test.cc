// Rates of GPUs that ranks do not share.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>

#include "algorithms/catalogue/catalogue.h"
#include "src/base/error.h"
#include "src/planner/fit_own_gpus.h"
#include "src/planner/gpu_rates.h"
#include "src/planner/init_plans.h"
#include "src/planner/rates_file.h"

namespace weft::test {
namespace {

// What teams take on GPUs with these rates. Packets take longer the more ranks there are, lanes
// begin later.
std::vector<OwnGpuTimes> times_with(const Rates& rates, double way, const std::vector<int>& teams,
                                    double more_packets) {
  std::vector<OwnGpuTimes> all;
  for (const int n : teams) {
    const double hops = n - 1;
    all.push_back(
        {n,
         rates.lane_start_us + rates.call_us + hops * (way + rates.step_us + 2 * rates.message_us),
         rates.call_us + hops * more_packets, way});
  }
  return all;
}

Rates some_rates() {
  Rates rates;
  rates.call_us = 2.5;
  rates.step_us = 0.9;
  rates.message_us = 0.3;
  rates.hop_us = 0.7;
  rates.lane_start_us = 4;
  return rates;
}

void expect_equal(const Rates& a, const Rates& b) {
  EXPECT_NEAR(a.call_us, b.call_us, 1e-9);
  EXPECT_NEAR(a.step_us, b.step_us, 1e-9);
  EXPECT_NEAR(a.message_us, b.message_us, 1e-9);
  EXPECT_NEAR(a.hop_us, b.hop_us, 1e-9);
  EXPECT_NEAR(a.lane_start_us, b.lane_start_us, 1e-9);
}

TEST(OwnGpus, AreFittedByTheirTeams) {
  Rates expected = some_rates();
  expected.hop_us = 3 * 0.5 - 0.7;  // of the team in the middle
  expect_equal(fit_own_gpus(times_with(some_rates(), 0.7, {2, 3, 4, 6, 8}, 0.5), {}), expected);
  expected.hop_us = 2 * 0.9 - 0.1;
  expect_equal(fit_own_gpus(times_with(some_rates(), 0.1, {2, 3}, 0.9), {}), expected);
}

TEST(OwnGpus, OfWhichThereAreTwoHaveOneRateOfTheirOwn) {
  Rates expected = some_rates();
  expected.hop_us = 1.5 - 0.7;
  expect_equal(fit_own_gpus(times_with(some_rates(), 0.7, {2}, 1.5), some_rates()), expected);
}

TEST(OwnGpus, ThatAreFasterTogetherAreRefused) {
  std::vector<OwnGpuTimes> odd = times_with(some_rates(), 0.7, {2, 4}, 0.5);
  odd[1].ring_us = odd[0].ring_us - 1;
  EXPECT_THROW(fit_own_gpus(odd, {}), Error);
  EXPECT_THROW(fit_own_gpus({}, {}), Error);
}

TEST(OwnGpus, CountWithWhatWasMeasured) {
  Calibration calibration;
  calibration.measured = "measured here";
  calibration.rates[kOwnGpuRates] = some_rates();
  // As init reads it.
  const Calibration read = parse_rates(write_rates(calibration), "a test");
  const GpuRates rates = gpu_rates({}, &read);
  EXPECT_NEAR(rates.call_us, 2.5, 1e-3);
  EXPECT_NEAR(rates.step_us, 0.9, 1e-3);
  EXPECT_NEAR(rates.message_us, 0.3, 1e-3);
  EXPECT_NEAR(rates.packet_us, 0.7, 1e-3);
  EXPECT_EQ(rates.origin, "rates measured here");
}

TEST(OwnGpus, ThatWereMeasuredHereCountForThisMachineOnly) {
  std::string folder = (std::filesystem::temp_directory_path() / "weft-own-gpus-XXXXXX").string();
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  Config config;
  config.cache = folder;
  config.synthesis_seconds = 0;
  Calibration calibration;
  calibration.measured = "measured here";
  calibration.rates[kOwnGpuRates] = some_rates();
  save_rates(config, calibration);
  const Machine machine = load_machine("dgx-h100");
  InitPlansRequest request{
      config, 8, true, {}, machine, 1, [](const ImportedSchedule&) { return true; }};
  EXPECT_NE(make_init_plans(request).table.origin.find("rates measured here"), std::string::npos);
  request.elsewhere = true;
  EXPECT_EQ(make_init_plans(request).table.origin.find("measured here"), std::string::npos);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace weft::test
