/** A reward term's file holds its schema. */
module.exports = {
  below: ['rewards', 'models', 'data', 'compute', 'core'],
};
