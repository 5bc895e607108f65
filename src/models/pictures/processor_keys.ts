/** Keys of preprocessor_config.json that have no say in the pixels a model is given, by transformers' image and video processors. */

/** Keys that say who wrote the file, in which form its arrays are returned, or how a step works that another key has to switch on. */
const withoutEffect: ReadonlySet<string> = new Set([
  '_processor_class',
  'auto_map',
  'feature_extractor_type',
  'image_processor_type',
  'model_input_names',
  'processor_class',
  'transformers_version',
  'video_processor_type',
  'data_format',
  'device',
  'disable_grouping',
  'input_data_format',
  'return_metadata',
  'return_tensors',
  // Every picture is read as RGB.
  'do_convert_rgb',
  'crop_size',
  'default_to_square',
  'pad_size',
  // The choice of a clip's frames is a setting of the data.
  'do_sample_frames',
  'fps',
  'max_frames',
  'min_frames',
  'num_frames',
  'video_metadata',
]);

/**
 * The first key that is neither in `read` nor known to have no effect, with its value, for messages; null if there is none. Null, false and empty
 * values ask for nothing.
 */
export function unknownStep(json: object, read: ReadonlySet<string>): string | null {
  const asks = (value: unknown): boolean =>
    value !== null && value !== false && value !== '' && (typeof value !== 'object' || Object.keys(value).length > 0);
  const found = Object.entries(json).find(([key, value]) => !read.has(key) && !withoutEffect.has(key) && asks(value));
  return found === undefined ? null : `${found[0]}: ${JSON.stringify(found[1]).slice(0, 60)}`;
}
