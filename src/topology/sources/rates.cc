// See rates.h.
#include "src/topology/sources/rates.h"

#include <algorithm>
#include <cmath>

namespace weft {
namespace {

constexpr double kSpeeds[] = {2.5, 5, 8, 16, 32, 64};
constexpr int kWidths[] = {16, 8, 4, 2, 1};

double nominal(double gts, int width) {
  const double coding = gts <= 5 ? 0.8 : gts <= 32 ? 128.0 / 130 : 1;
  return gts * width / 8 * coding;
}

template <typename Rate>
double closest(double wanted, Rate rate, double& gts, int& width) {
  double best = 1e30;
  for (const int lanes : kWidths) {
    for (const double speed : kSpeeds) {
      const double error = std::abs(rate(speed, lanes) / wanted - 1);
      if (error >= best - 1e-3) continue;  // of equal rates take the wider, older link
      best = error;
      gts = speed;
      width = lanes;
    }
  }
  return best;
}

}  // namespace

double pcie_gbps(double gts, int width) { return gts * width * 0.09375; }

void pcie_from_nominal(double nominal_gbps, double& gts, int& width) {
  gts = width = 0;
  if (nominal_gbps > 0) closest(nominal_gbps, nominal, gts, width);
}

bool pcie_from_effective(double gbps, double& gts, int& width) {
  return gbps > 0 && closest(gbps, pcie_gbps, gts, width) < 0.01;
}

double nvlink_gbps(int sm) {
  if (sm >= 100) return 40.1;
  if (sm >= 90) return 20.6;
  if (sm == 86 || sm == 87) return 12;
  if (sm >= 70) return 20;
  if (sm >= 60) return 18;
  return 20;
}

double nvlink_nominal_gbps(int sm) {
  if (sm >= 100) return 50;
  if (sm == 86 || sm == 87) return 14;
  return sm >= 60 && sm < 70 ? 20 : 25;
}

double xgmi_gbps(std::string_view arch) {
  if (arch.find("gfx94") != arch.npos || arch.find("gfx95") != arch.npos || arch == "940" ||
      arch == "942" || arch == "950")
    return 48;
  if (arch.find("gfx90a") != arch.npos || arch == "910") return 36;
  return 24;
}

double socket_gbps(std::string_view arch, std::string_view vendor, int family, int model) {
  if (arch == "arm64" || arch == "aarch64") return 6;
  if (arch.substr(0, 5) == "ppc64") return 32;
  if (vendor == "AuthenticAMD") return 16;
  if (vendor == "GenuineIntel" && family == 6) {
    if (model >= 0xad) return 40;  // Granite Rapids and later
    if (model >= 0x8f) return 22;  // Sapphire and Emerald Rapids
    if (model >= 0x55) return 10;  // Skylake to Ice Lake
    return 6;
  }
  return 10;
}

constexpr double kPayload = 0.96;  // share of a port's bits

double network_gbps(double mbps) { return mbps / 8000 * kPayload; }
double network_mbps(double gbps) { return gbps * 8000 / kPayload; }

const KnownDevice* known_device(unsigned vendor, unsigned device) {
  static constexpr KnownDevice kDevices[] = {
      {0x10de, 0x15f8, "P100-PCIE", 60, 0},
      {0x10de, 0x15f9, "P100-SXM2", 60, 0},
      {0x10de, 0x1db1, "V100-SXM2", 70, 0},
      {0x10de, 0x1db4, "V100-PCIE", 70, 0},
      {0x10de, 0x1db5, "V100-SXM2", 70, 0},
      {0x10de, 0x1db8, "V100-SXM3", 70, 0},
      {0x10de, 0x1db6, "V100-PCIE", 70, 0},
      {0x10de, 0x1eb8, "T4", 75, 0},
      {0x10de, 0x20b0, "A100-SXM4", 80, 0},
      {0x10de, 0x20b2, "A100-SXM4", 80, 0},
      {0x10de, 0x20b5, "A100-PCIE", 80, 0},
      {0x10de, 0x20f1, "A100-PCIE", 80, 0},
      {0x10de, 0x20f3, "A800-SXM4", 80, 0},
      {0x10de, 0x2204, "RTX 3090", 86, 0},
      {0x10de, 0x2230, "RTX A6000", 86, 0},
      {0x10de, 0x2235, "A40", 86, 0},
      {0x10de, 0x2236, "A10", 86, 0},
      {0x10de, 0x2684, "RTX 4090", 89, 0},
      {0x10de, 0x26b5, "L40", 89, 0},
      {0x10de, 0x26b9, "L40S", 89, 0},
      {0x10de, 0x26ba, "L20", 89, 0},
      {0x10de, 0x27b8, "L4", 89, 0},
      {0x10de, 0x2324, "H800", 90, 0},
      {0x10de, 0x2330, "H100-SXM5", 90, 0},
      {0x10de, 0x2331, "H100-PCIE", 90, 0},
      {0x10de, 0x2335, "H200-SXM", 90, 0},
      {0x10de, 0x2342, "GH200", 90, 0},
      {0x10de, 0x2901, "B200", 100, 0},
      {0x10de, 0x2941, "GB200", 100, 0},
      {0x15b3, 0x1003, "ConnectX-3", 0, 56000},
      {0x15b3, 0x1011, "Connect-IB", 0, 56000},
      {0x15b3, 0x1013, "ConnectX-4", 0, 100000},
      {0x15b3, 0x1014, "ConnectX-4 VF", 0, 100000},
      {0x15b3, 0x1017, "ConnectX-5", 0, 100000},
      {0x15b3, 0x1018, "ConnectX-5 VF", 0, 100000},
      {0x15b3, 0x1019, "ConnectX-5 Ex", 0, 100000},
      {0x15b3, 0x101b, "ConnectX-6", 0, 200000},
      {0x15b3, 0x101c, "ConnectX-6 VF", 0, 200000},
      {0x15b3, 0x101d, "ConnectX-6 Dx", 0, 100000},
      {0x15b3, 0x1021, "ConnectX-7", 0, 400000},
      {0x15b3, 0x1023, "ConnectX-8", 0, 800000},
      {0x15b3, 0xa2dc, "BlueField-3", 0, 400000},
      {0x1d0f, 0xefa0, "EFA", 0, 100000},
      {0x1d0f, 0xefa1, "EFA", 0, 100000},
      {0x1d0f, 0xefa2, "EFA", 0, 100000},
      {0x1d0f, 0xec20, "ENA", 0, 25000},
      {0x14e4, 0x1639, "BCM5709", 0, 1000},
      {0x14e4, 0x16d8, "BCM57416", 0, 10000},
      {0x8086, 0x1572, "X710", 0, 10000},
      {0x8086, 0x1521, "I350", 0, 1000},
      {0x1002, 0x7408, "MI250X", 0, 0},
      {0x1002, 0x740c, "MI250", 0, 0},
      {0x1002, 0x74a1, "MI300X", 0, 0},
      {0x1002, 0x738c, "MI100", 0, 0},
  };
  for (const auto& known : kDevices)
    if (known.vendor == vendor && known.device == device) return &known;
  return nullptr;
}

}  // namespace weft
