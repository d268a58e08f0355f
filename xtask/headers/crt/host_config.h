/* See host_defines.h beside this file. */
#pragma once
