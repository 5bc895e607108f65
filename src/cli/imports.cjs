/** Verbs call every room. */
module.exports = {
  below: ['web', 'launch', 'recipes', 'train', 'run', 'config', 'rewards', 'models', 'data', 'compute', 'core'],
};
