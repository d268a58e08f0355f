/* What belongs to libcuda and needs a little help to be read. */
#pragma once
#include <cuda.h>
/* cudaVDPAU.h takes it for granted that cuda.h and VDPAU have been read. */
#include <vdpau/vdpau.h>
#if __has_include(<cudaVDPAU.h>)
#include <cudaVDPAU.h>
#endif

/* No header declares it, although the version tables of cuda.h name it: only the runtime calls it. */
CUresult cuGetExportTable(const void **ppExportTable, const CUuuid *pExportTableId);
