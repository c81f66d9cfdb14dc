// Keel's kernels as the page calls them. await load(text), where text is the module compressed by gzip and in base64, gives
// an object with
//   normals(count, stream, seed)  standard normal numbers
//   attend(call)                  attention of one head: everything below
//   scores(call)                  the scores alone, before any mask: n_q × n_k
// A call is {n_q, n_k, d_k, d_v, q, k, v} and may have scale (1/√d_k unless given), softcap, sink, causal, window, mask and
// dout, with which there are gradients. Arrays are Float32Arrays, row by row. A bad argument throws an Error with Keel's own words.
"use strict";
const Keel = (() => {
  // The order of the members of Call in web/playground.cc.
  const SIZES = ["n_q", "n_k", "d_k", "d_v"];
  const OUTPUTS = {
    out: (c) => c.n_q * c.d_v, lse: (c) => c.n_q, max_logit: (c) => c.n_q, entropy: (c) => c.n_q, max_weight: (c) => c.n_q,
    logit_mean: (c) => c.n_q, logit_var: (c) => c.n_q, weights: (c) => c.n_q * c.n_k,
  };
  const GRADIENTS = { dq: (c) => c.n_q * c.d_k, dk: (c) => c.n_k * c.d_k, dv: (c) => c.n_k * c.d_v, ds: (c) => c.n_q * c.n_k };
  const WORDS = 32;  // room for a Call

  async function load(text) {
    const packed = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
    const unpacked = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
    const bytes = new Uint8Array(await new Response(unpacked).arrayBuffer());
    let wasm = null;
    const message = (at) => {
      const memory = new Uint8Array(wasm.memory.buffer);
      return new TextDecoder().decode(memory.slice(at, memory.indexOf(0, at)));
    };
    const refuse = (name) => () => { throw new Error(`the playground has no ${name}`); };
    const system = {};
    const module = await WebAssembly.compile(bytes);
    for (const { module: from, name } of WebAssembly.Module.imports(module)) if (from !== "page") system[name] = refuse(name);
    const instance = await WebAssembly.instantiate(module, {
      page: { fail: (at) => { throw new Error(message(at)); } },
      wasi_snapshot_preview1: system,
    });
    wasm = instance.exports;
    wasm._initialize();

    // Runs work(put, take); what it put into the module's memory is freed, and the stack is as before, whatever happens.
    function frame(work) {
      const stack = wasm.__stack_pointer.value, blocks = [];
      const take = (bytes) => {
        const at = wasm.allocate(Math.max(bytes, 4));
        blocks.push(at);
        return at;
      };
      const put = (array) => {
        const at = take(array.byteLength);
        new Uint8Array(wasm.memory.buffer, at, array.byteLength).set(new Uint8Array(array.buffer, array.byteOffset, array.byteLength));
        return at;
      };
      try {
        return work(put, take);
      } finally {
        wasm.__stack_pointer.value = stack;
        for (const at of blocks) wasm.release(at);
      }
    }

    const read = (at, count) => new Float32Array(wasm.memory.buffer, at, count).slice();

    function write(call, put, take) {
      const c = { scale: 1 / Math.sqrt(call.d_k), softcap: 0, sink: NaN, causal: 0, window: -1, ...call };
      const at = take(4 * WORDS), places = {};
      const floats = new Float32Array(WORDS), words = new Int32Array(floats.buffer);
      let next = 0;
      for (const name of SIZES) words[next++] = c[name];
      for (const name of ["scale", "softcap", "sink"]) floats[next++] = c[name];
      words[next++] = c.causal ? 1 : 0;
      words[next++] = c.window;
      for (const name of ["q", "k", "v"]) words[next++] = put(c[name]);
      words[next++] = c.mask ? put(Uint8Array.from(c.mask, Number)) : 0;
      for (const name in OUTPUTS) words[next++] = places[name] = take(4 * OUTPUTS[name](c));
      words[next++] = c.dout ? put(c.dout) : 0;
      for (const name in GRADIENTS) words[next++] = c.dout ? places[name] = take(4 * GRADIENTS[name](c)) : 0;
      new Int32Array(wasm.memory.buffer, at, WORDS).set(words);
      return { at, places };
    }

    return {
      normals: (count, stream, seed = 0) => frame((put, take) => {
        const at = take(4 * count);
        wasm.normals(at, count, seed, stream);
        return read(at, count);
      }),
      attend: (call) => frame((put, take) => {
        const { at, places } = write(call, put, take);
        wasm.attend(at);
        const sizes = { ...OUTPUTS, ...GRADIENTS };
        return Object.fromEntries(Object.entries(places).map(([name, place]) => [name, read(place, sizes[name](call))]));
      }),
      scores: (call) => frame((put, take) => {
        const { at } = write({ ...call, mask: null, dout: null }, put, take);
        const to = take(4 * call.n_q * call.n_k);
        wasm.scores(at, to);
        const turned = read(to, call.n_q * call.n_k);  // one key after the other
        return turned.map((_, i) => turned[(i % call.n_k) * call.n_q + Math.floor(i / call.n_k)]);
      }),
      bytes: bytes.length,
    };
  }
  return { load };
})();
