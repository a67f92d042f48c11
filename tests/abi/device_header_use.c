/* nccl_device.h in a C program. */
#include <nccl_device.h>

unsigned requirements_of_c(void);

unsigned requirements_of_c(void) {
  const ncclDevCommRequirements_t wanted = NCCL_DEV_COMM_REQUIREMENTS_INITIALIZER;
  const ncclCommProperties_t properties = NCCL_COMM_PROPERTIES_INITIALIZER;
  return wanted.version == properties.version && wanted.size == sizeof wanted ? wanted.version : 0;
}
