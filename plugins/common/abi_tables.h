// NCCL's network tables of all versions, made from one class of static functions. A plugin of ours
// writes only that class. It has kName, start(log), device_count(), facts(dev, DeviceFacts&),
// merge(devs, n, &dev) if it can merge devices, listen(dev, handle, &comm), connect(dev,
// traffic_class, handle, &comm), accept(listener, &comm), reg_mr, reg_mr_dma_buf, dereg_mr, iflush,
// test as in the ABI, isend(comm, data, size, mr, &request), irecv(comm, n, data, size, mr,
// &request), close_send, close_recv, close_listen.
#pragma once

#include <iterator>
#include <string>
#include <vector>

#include "src/transport/net_abi/v10.h"
#include "src/transport/net_abi/v12.h"
#include "src/transport/net_abi/v8.h"

namespace weft {

struct DeviceFacts {
  const char *name = "", *pci_path = nullptr;
  uint64_t guid = 0;
  int pointers = net_abi::kHostPointer;
  int speed_mbps = 0, port = 0;
  float latency_us = 0;
  int max_comms = 65536;
  std::vector<int> members;  // of a merged device; empty: itself
};

template <typename Plugin>
struct AbiTables {
  using DeviceHandle = net_abi::DeviceHandle;

  static ncclResult_t init_v8(net_abi::Logger log) { return Plugin::start(log); }
  static ncclResult_t init_v10(net_abi::Logger log, net_abi::ProfilerCallback) {
    return Plugin::start(log);
  }
  // A communicator's context holds only its traffic class. No traffic class is a null pointer.
  static ncclResult_t init_v11(void** context, uint64_t, net_abi::CommConfig* config,
                               net_abi::Logger log, net_abi::ProfilerCallback) {
    const int traffic_class = config == nullptr ? net_abi::kUndefined : config->traffic_class;
    *context = traffic_class < 0
                   ? nullptr
                   : reinterpret_cast<void*>(static_cast<uintptr_t>(traffic_class) + 1);
    return Plugin::start(log);
  }
  static int traffic_class_of(void* context) {
    return static_cast<int>(reinterpret_cast<uintptr_t>(context)) - 1;
  }
  static ncclResult_t finalize(void*) { return ncclSuccess; }
  static ncclResult_t set_attributes(void*, net_abi::NetAttributes*) { return ncclSuccess; }

  static ncclResult_t devices(int* ndev) {
    *ndev = Plugin::device_count();
    return ncclSuccess;
  }

  template <typename Properties>
  static ncclResult_t get_properties(int dev, Properties* properties) {
    DeviceFacts facts;
    if (const ncclResult_t code = Plugin::facts(dev, facts); code != ncclSuccess) return code;
    *properties = {};
    properties->name = const_cast<char*>(facts.name);
    properties->pci_path = const_cast<char*>(facts.pci_path);
    properties->guid = facts.guid;
    properties->pointer_support = facts.pointers;
    properties->speed = facts.speed_mbps;
    properties->port = facts.port;
    properties->latency = facts.latency_us;
    properties->max_comms = facts.max_comms;
    properties->max_receives = 1;
    properties->device_type = net_abi::kDeviceHost;
    if constexpr (requires { properties->max_p2p_bytes; }) {
      if (facts.members.empty()) facts.members = {dev};
      auto& all = properties->virtual_device;
      for (const int member : facts.members)
        if (all.ndevs < static_cast<int>(std::size(all.devs))) all.devs[all.ndevs++] = member;
      properties->max_p2p_bytes = net_abi::kLargestSize;
      properties->max_coll_bytes = net_abi::kLargestSize;
    }
    if constexpr (requires { properties->max_multi_request; }) properties->max_multi_request = 1;
    if constexpr (requires { properties->rail; }) {
      properties->rail = net_abi::kUndefined;
      properties->plane = net_abi::kUndefined;
    }
    return ncclSuccess;
  }
  template <typename VirtualDevice>
  static ncclResult_t make_virtual_device(int* dev, VirtualDevice* device) {
    return Plugin::merge(device->devs, device->ndevs, dev);
  }
  template <typename VirtualDevice>
  static constexpr auto merger() -> ncclResult_t (*)(int*, VirtualDevice*) {
    if constexpr (requires { &Plugin::merge; }) {
      return make_virtual_device<VirtualDevice>;
    } else {
      return nullptr;
    }
  }

  static ncclResult_t listen_in(void*, int dev, void* handle, void** comm) {
    return Plugin::listen(dev, handle, comm);
  }
  static ncclResult_t connect(int dev, void* handle, void** comm, DeviceHandle**) {
    return Plugin::connect(dev, net_abi::kUndefined, handle, comm);
  }
  static ncclResult_t connect_v10(int dev, net_abi::CommConfig* config, void* handle, void** comm,
                                  DeviceHandle**) {
    return Plugin::connect(dev, config == nullptr ? net_abi::kUndefined : config->traffic_class,
                           handle, comm);
  }
  static ncclResult_t connect_in(void* context, int dev, void* handle, void** comm,
                                 DeviceHandle**) {
    return Plugin::connect(dev, traffic_class_of(context), handle, comm);
  }
  static ncclResult_t accept(void* listener, void** comm, DeviceHandle**) {
    return Plugin::accept(listener, comm);
  }

  static ncclResult_t isend_v8(void* comm, void* data, int size, int, void* mr, void** request) {
    return Plugin::isend(comm, data, static_cast<size_t>(size), mr, request);
  }
  static ncclResult_t isend_v9(void* comm, void* data, size_t size, int, void* mr, void** request) {
    return Plugin::isend(comm, data, size, mr, request);
  }
  static ncclResult_t isend_v10(void* comm, void* data, size_t size, int, void* mr, void*,
                                void** request) {
    return Plugin::isend(comm, data, size, mr, request);
  }
  static ncclResult_t irecv_v8(void* comm, int n, void** data, int* sizes, int*, void** mrs,
                               void** request) {
    return Plugin::irecv(comm, n, data[0], static_cast<size_t>(sizes[0]), mrs[0], request);
  }
  static ncclResult_t irecv_v9(void* comm, int n, void** data, size_t* sizes, int*, void** mrs,
                               void** request) {
    return Plugin::irecv(comm, n, data[0], sizes[0], mrs[0], request);
  }
  static ncclResult_t irecv_v10(void* comm, int n, void** data, size_t* sizes, int*, void** mrs,
                                void**, void** request) {
    return Plugin::irecv(comm, n, data[0], sizes[0], mrs[0], request);
  }

  using P = Plugin;
  static constexpr net_abi::NetV8 kV8 = {
      P::kName,          init_v8,     devices,       get_properties<net_abi::PropertiesV8>,
      P::listen,         connect,     accept,        P::reg_mr,
      P::reg_mr_dma_buf, P::dereg_mr, isend_v8,      irecv_v8,
      P::iflush,         P::test,     P::close_send, P::close_recv,
      P::close_listen,   nullptr,     nullptr};
  static constexpr net_abi::NetV9 kV9 = {
      P::kName,          init_v8,     devices,       get_properties<net_abi::PropertiesV9>,
      P::listen,         connect,     accept,        P::reg_mr,
      P::reg_mr_dma_buf, P::dereg_mr, isend_v9,      irecv_v9,
      P::iflush,         P::test,     P::close_send, P::close_recv,
      P::close_listen,   nullptr,     nullptr,       merger<net_abi::VirtualDeviceV9>()};
  static constexpr net_abi::NetV10 kV10 = {
      P::kName,          init_v10,    devices,       get_properties<net_abi::PropertiesV10>,
      P::listen,         connect_v10, accept,        P::reg_mr,
      P::reg_mr_dma_buf, P::dereg_mr, isend_v10,     irecv_v10,
      P::iflush,         P::test,     P::close_send, P::close_recv,
      P::close_listen,   nullptr,     nullptr,       merger<net_abi::VirtualDeviceV9>()};
  static constexpr net_abi::NetV11 kV11 = {
      {P::kName,          init_v11,      devices,       get_properties<net_abi::PropertiesV11>,
       listen_in,         connect_in,    accept,        P::reg_mr,
       P::reg_mr_dma_buf, P::dereg_mr,   isend_v10,     irecv_v10,
       P::iflush,         P::test,       P::close_send, P::close_recv,
       P::close_listen,   nullptr,       nullptr,       merger<net_abi::VirtualDeviceV9>(),
       finalize,          set_attributes}};
  static constexpr net_abi::NetV12 kV12 = {
      {P::kName,          init_v11,      devices,       get_properties<net_abi::PropertiesV12>,
       listen_in,         connect_in,    accept,        P::reg_mr,
       P::reg_mr_dma_buf, P::dereg_mr,   isend_v10,     irecv_v10,
       P::iflush,         P::test,       P::close_send, P::close_recv,
       P::close_listen,   nullptr,       nullptr,       merger<net_abi::VirtualDeviceV12>(),
       finalize,          set_attributes}};
};

}  // namespace weft
