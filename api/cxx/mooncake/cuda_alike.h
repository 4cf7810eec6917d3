/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef MOONRAIL_MOONCAKE_CUDA_ALIKE_H
#define MOONRAIL_MOONCAKE_CUDA_ALIKE_H

/* Includes the CUDA runtime if the program is compiled with USE_CUDA. */
#include <string>

#ifdef USE_CUDA
#include <cuda.h>
#include <cuda_runtime.h>
#endif

/* The location of GPU memory is this text and a number, such as "cuda:0". */
inline const std::string GPU_PREFIX = "cuda:";

#endif
