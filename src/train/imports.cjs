/** Training writes records and checkpoints of a run. */
module.exports = {
  below: ['run', 'config', 'rewards', 'models', 'data', 'compute', 'core'],
};
