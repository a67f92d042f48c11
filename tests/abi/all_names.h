/* The functions of NCCL 2.30.7, as all_names.c.in lists them. */
#pragma once

struct name {
  const char* text;
  void (*address)(void);
};

extern const struct name all_names[]; /* nccl* and pnccl*; the last is {NULL, NULL} */
extern const char* const new_names[]; /* nccl* since NCCL 2.29; the last is NULL */
