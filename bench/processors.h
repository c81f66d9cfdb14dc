#pragma once

namespace keel::bench {

// Which processors threads run on, so that what is compared has the same ones. The first of the list belong to
// different cores, as far as there are enough of them; second threads of the cores come after.
void bind_thread(int n);       // the calling thread, to the n-th
void bind_process(int count);  // all threads of the process, to the first so many
void unbind_process();

}  // namespace keel::bench
