#pragma once

// Marks what the shared library offers; everything else stays hidden.
#define KEEL_API __attribute__((visibility("default")))
