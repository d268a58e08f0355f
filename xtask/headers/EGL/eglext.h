/* See egl.h beside this file. */
#pragma once
#include "egl.h"
typedef void *EGLStreamKHR;
typedef void *EGLImageKHR;
typedef void *EGLSyncKHR;
