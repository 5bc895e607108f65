/** Usable on its own: of core it imports pure files only. */
module.exports = {
  below: [],
  also: '^src/core/(errors|random|half|finite|safetensors)\\.ts$',
  rules: [
    {
      name: 'one-door-to-onnxruntime',
      severity: 'error',
      from: { path: '^src/', pathNot: '^src/compute/onnx/' },
      to: { path: 'onnxruntime-node' },
    },
  ],
};
