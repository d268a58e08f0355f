/* CUDA's own cudaProfiler.h is in a package of its own, which nothing else requires. */
#pragma once
#include <cuda.h>
typedef int CUoutput_mode;
CUresult cuProfilerInitialize(const char *configFile, const char *outputFile, CUoutput_mode outputMode);
CUresult cuProfilerStart(void);
CUresult cuProfilerStop(void);
