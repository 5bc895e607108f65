/** A run records its config and the outcomes of rewards. */
module.exports = {
  below: ['config', 'rewards', 'models', 'data', 'compute', 'core'],
};
