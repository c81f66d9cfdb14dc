#pragma once

// All of Keel's public C++ interface.
#include "keel/attention.h"
#include "keel/dtype.h"
#include "keel/error.h"
#include "keel/threads.h"
#include "keel/view.h"
