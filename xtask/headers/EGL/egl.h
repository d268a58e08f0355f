/* The names of EGL that CUDA's interoperation headers use. */
#pragma once
typedef int EGLint;
typedef unsigned int EGLBoolean;
typedef void *EGLDisplay;
