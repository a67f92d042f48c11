// Reduction operators: the built-in ones, and those made with ncclRedOpCreatePreMulSum.
#include <cstring>

#include "src/api/checks.h"
#include "src/api/guard.h"
#include "src/exec/cuda/gpu_executor.h"

namespace weft::api {
namespace {

// An operator's number holds the tag of its communicator and its index there.
constexpr int kIndexBits = 12;
constexpr uint32_t kTagMask = (1u << 18) - 1;

ncclRedOp_t encode(const ncclComm& comm, size_t index) {
  return static_cast<ncclRedOp_t>(ncclNumOps +
                                  static_cast<int>((comm.tag & kTagMask) << kIndexBits | index));
}

// The comm's mutex must be held.
UserOp& user_op(ncclComm& comm, ncclRedOp_t op) {
  const auto number = static_cast<uint32_t>(static_cast<int>(op) - static_cast<int>(ncclNumOps));
  const uint32_t index = number & ((1u << kIndexBits) - 1);
  if (number >> kIndexBits != (comm.tag & kTagMask))
    fail(ncclInvalidArgument, "op {} was made by another communicator (or by none)",
         static_cast<int>(op));
  if (index >= comm.ops.size() || !comm.ops[index].alive)
    fail(ncclInvalidArgument, "op {} does not exist, or has been destroyed", static_cast<int>(op));
  return comm.ops[index];
}

}  // namespace

Reduction reduction_of(ncclComm& comm, ncclRedOp_t op, ncclDataType_t type) {
  Reduction reduction;
  reduction.type = type;
  if (static_cast<int>(op) < 0 || op > ncclMaxRedOp)
    fail(ncclInvalidArgument, "op is {}", static_cast<int>(op));
  if (op < ncclAvg) {
    reduction.op = op;
  } else if (op == ncclAvg) {
    reduction.op = ncclSum;
    reduction.divide_by = static_cast<uint32_t>(comm.nranks);
  } else {
    std::lock_guard lock(comm.mutex);
    const UserOp& user = user_op(comm, op);
    if (user.type != type)
      fail(ncclInvalidArgument, "op {} was made for datatype {}, not {}", static_cast<int>(op),
           static_cast<int>(user.type), static_cast<int>(type));
    reduction.op = ncclSum;
    reduction.premultiply = true;
    reduction.scalar_bits = user.bits;
    if (user.device_scalar != nullptr && cuda::available() && cuda::on_device(user.device_scalar)) {
      reduction.scalar_at = user.device_scalar;
    } else if (user.device_scalar != nullptr) {
      std::memcpy(&reduction.scalar_bits, user.device_scalar, element_size(type));
    }
  }
  return reduction;
}

WEFT_EXPORT(ncclResult_t, RedOpCreatePreMulSum,
            (ncclRedOp_t * op, void* scalar, ncclDataType_t datatype,
             ncclScalarResidence_t residence, ncclComm_t comm)) {
  return guard("ncclRedOpCreatePreMulSum", [&] {
    check_pointer("op", op);
    check_pointer("scalar", scalar);
    check_type(datatype);
    check_handle(comm);
    if (residence != ncclScalarDevice && residence != ncclScalarHostImmediate)
      fail(ncclInvalidArgument, "residence is {}", static_cast<int>(residence));
    UserOp user;
    user.alive = true;
    user.type = datatype;
    if (residence == ncclScalarDevice) {
      user.device_scalar = scalar;
    } else {
      std::memcpy(&user.bits, scalar, element_size(datatype));
    }
    std::lock_guard lock(comm->mutex);
    size_t index = 0;
    while (index < comm->ops.size() && comm->ops[index].alive) index++;
    if (index >= (1u << kIndexBits))
      fail(ncclInvalidUsage, "op: {} operators are alive already", index);
    if (index == comm->ops.size()) comm->ops.emplace_back();
    comm->ops[index] = user;
    *op = encode(*comm, index);
  });
}

WEFT_EXPORT(ncclResult_t, RedOpDestroy, (ncclRedOp_t op, ncclComm_t comm)) {
  return guard("ncclRedOpDestroy", [&] {
    check_handle(comm);
    if (static_cast<int>(op) >= 0 && op < ncclNumOps)
      fail(ncclInvalidArgument, "op {} is built in and cannot be destroyed", static_cast<int>(op));
    std::lock_guard lock(comm->mutex);
    user_op(*comm, op).alive = false;
  });
}

}  // namespace weft::api
