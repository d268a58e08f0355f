/* cusparseLt.h says alignas, which C before C23 only knows with this header. */
#pragma once
#include <stdalign.h>
#if __has_include(<cusparseLt.h>)
#include <cusparseLt.h>
#endif
