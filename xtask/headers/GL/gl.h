/* The two names of OpenGL that CUDA's interoperation headers use. */
#pragma once
typedef unsigned int GLenum;
typedef unsigned int GLuint;
typedef int GLint;
#define GL_VERSION_1_1 1
