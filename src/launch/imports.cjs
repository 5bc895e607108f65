/** A worker opens recipes. */
module.exports = {
  below: ['recipes', 'train', 'run', 'config', 'rewards', 'models', 'data', 'compute', 'core'],
};
