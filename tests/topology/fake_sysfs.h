// A fake machine for tests of discovery. PCI devices, NUMA nodes and NICs are files in a temporary
// folder that replaces the root of the file system.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace weft::test {

class FakeSysfs {
 public:
  FakeSysfs() {
    std::string name = (std::filesystem::temp_directory_path() / "weft-sysfs-XXXXXX").string();
    root_ = mkdtemp(name.data());
    std::filesystem::create_directories(root_ / "sys/bus/pci/devices");
  }
  ~FakeSysfs() { std::filesystem::remove_all(root_); }
  FakeSysfs(const FakeSysfs&) = delete;
  FakeSysfs& operator=(const FakeSysfs&) = delete;

  std::string root() const { return root_.string(); }

  void write(const std::string& path, const std::string& text) {
    const auto file = root_ / path.substr(path[0] == '/' ? 1 : 0);
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text << "\n";
  }

  void numa_nodes(int count) {
    for (int i = 0; i < count; i++)
      write("sys/devices/system/node/node" + std::to_string(i) + "/cpumap", "ff");
  }

  // `chain` has the bus ids from the root port down to the device itself.
  struct Pci {
    std::vector<std::string> chain;
    std::string device_class, vendor, device;
    std::string speed = "16.0 GT/s PCIe", width = "16";
    int numa = 0;
  };
  void pci(const Pci& pci) {
    std::string path = "sys/devices/pci0000:00";
    for (const auto& bus : pci.chain) path += "/" + bus;
    write(path + "/class", pci.device_class);
    write(path + "/vendor", pci.vendor);
    write(path + "/device", pci.device);
    write(path + "/max_link_speed", pci.speed);
    write(path + "/max_link_width", pci.width);
    write(path + "/current_link_width", pci.width);
    write(path + "/numa_node", std::to_string(pci.numa));
    link("sys/bus/pci/devices/" + pci.chain.back(), path);
  }
  void bridge(const std::vector<std::string>& chain, int numa = 0,
              const std::string& speed = "16.0 GT/s PCIe", const std::string& width = "16") {
    pci({chain, "0x060400", "0x1000", "0xc030", speed, width, numa});
  }

  void rdma(const std::string& name, const std::string& bus, const std::string& rate,
            const std::string& state = "4: ACTIVE", const std::string& layer = "InfiniBand") {
    const std::string port = "sys/class/infiniband/" + name + "/ports/1/";
    write(port + "rate", rate);
    write(port + "state", state);
    write(port + "link_layer", layer);
    write(port + "gids/0", "fe80:0000:0000:0000:0002:c903:00ef:1234");
    write("sys/class/infiniband/" + name + "/node_guid", "0002:c903:00ef:1234");
    write("sys/class/infiniband/" + name + "/fw_ver", "28.39.1002");
    link("sys/class/infiniband/" + name + "/device", "sys/bus/pci/devices/" + bus);
  }

  void ethernet(const std::string& name, const std::string& bus, const std::string& speed,
                const std::string& state = "up") {
    write("sys/class/net/" + name + "/speed", speed);
    write("sys/class/net/" + name + "/operstate", state);
    if (!bus.empty()) link("sys/class/net/" + name + "/device", "sys/bus/pci/devices/" + bus);
  }

 private:
  void link(const std::string& from, const std::string& to) {
    std::filesystem::create_directories((root_ / from).parent_path());
    std::filesystem::create_symlink(std::filesystem::absolute(root_ / to), root_ / from);
  }
  std::filesystem::path root_;
};

}  // namespace weft::test
